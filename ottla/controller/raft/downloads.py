"""The end of a snapshot's download: the file is checked and made durable before the core may use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import SnapshotReceived
from ottla.controller.raft.snapshots import Snapshots
from ottla.server.turns import run_in_turns
from ottla.storage.errors import CorruptFile

if TYPE_CHECKING:
    from ottla.server.world import World

logger = logging.getLogger(__name__)


async def check_and_store(
    world: World, snapshots: Snapshots, snapshot: OffsetAndEpoch, node_id: int
) -> SnapshotReceived | None:
    """Checks the whole snapshot, a slice in each turn of the event loop, and makes it durable on a worker. None: it is damaged."""
    try:
        control = await run_in_turns(world.clock, snapshots.checking(snapshot))
    except CorruptFile as fault:
        logger.error("[raft %d] downloaded snapshot is damaged: %s", node_id, fault)
        return None
    await world.workers.run(snapshots.finish, snapshot)
    return SnapshotReceived(snapshot, control.voters, control.kraft_version)
