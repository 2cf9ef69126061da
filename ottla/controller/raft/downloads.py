"""The end of a snapshot's download: it is checked whole, and then made durable under its name."""

from __future__ import annotations

import logging

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import ControlRecords
from ottla.controller.raft.snapshots import Snapshots
from ottla.server.clock import run_in_turns
from ottla.server.world import World
from ottla.storage.errors import CorruptFile, DiskFull

logger = logging.getLogger(__name__)


async def completed(world: World, snapshots: Snapshots, snapshot: OffsetAndEpoch) -> ControlRecords | None:
    """Checks the download, a slice in each turn, and makes it durable on a worker.

    Returns its control records; None if it is damaged, or the disk has no room for its name: it is downloaded again.

    Raises:
        StorageFailure: the disk has failed.
    """
    try:
        control = await run_in_turns(world.clock, snapshots.checking(snapshot))
        await world.workers.run(snapshots.finish, snapshot)
    except (CorruptFile, DiskFull) as fault:
        logger.error("the downloaded snapshot %s is not used: %s", snapshot, fault)
        return None
    return control
