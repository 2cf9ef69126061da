"""Flush before acknowledging (`flush.messages`), many appends at a time: group commit.

One flush per partition runs at a time, on a worker. Whatever is appended meanwhile shares the next one, so that a busy partition
pays for a few hundred flushes a second, not for one per request. With flush.messages=1 nothing unflushed is ever committed or
shown to a consumer: the high watermark waits for the disk as it waits for followers.
"""

from __future__ import annotations

import logging
from typing import Protocol

from ottla.server.clock import pause
from ottla.server.disk_queue import Priority
from ottla.server.world import World
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: The interval of a leader's flushes while its disk has no room.
BACKOFF_MS = 1_000


class Flushed(Protocol):
    """The owner of a flush, which is notified of it: a partition."""

    @property
    def wants_flush(self) -> bool: ...

    @property
    def leader_log(self) -> Log | None: ...

    def flushed(self, failed: bool) -> None: ...


async def flush_log(world: World, local_log: Log, priority: Priority = Priority.ACKNOWLEDGE) -> bool:
    """Flush on a thread of its disk. Returns False if the log was truncated or closed meanwhile; raises StorageFailure."""
    job = local_log.begin_flush()
    if job is None:
        return not local_log.closed
    await world.workers.on_disk(local_log.partition_dir.log_dir, priority, job.run)
    return local_log.end_flush(job, world.clock.wall_ms())


async def flush_when_there_is_room(world: World, local_log: Log, backoff_ms: int) -> bool:
    """Does what `flush_log` does, and tries again each `backoff_ms` while the disk has no room; other failures are raised.

    A shortage changes nothing and takes no log directory offline, so nothing else would ever flush what waits for it.
    """
    is_short = False
    while True:
        try:
            return await flush_log(world, local_log)
        except DiskFull as shortage:
            if not is_short:  # once: until there is room it fails each time
                log.error("flush of %s is tried again: %s", local_log, shortage)
            is_short = True
            await pause(world.clock, backoff_ms)


class GroupFlush:
    """The flushes of one node's partitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[int] = set()

    def request(self, owner: Flushed) -> None:
        """Flushes soon; calls `owner.flushed` after each flush, and repeats while `owner.wants_flush`."""
        key = id(owner)
        if key not in self._running:
            self._running.add(key)
            self._world.spawn(self._flush(key, owner), f"flush {owner}")

    async def _flush(self, key: int, owner: Flushed) -> None:
        failed = False
        try:
            # The log may be replaced by its future log meanwhile.
            while owner.wants_flush and not failed and (local_log := owner.leader_log) and not local_log.closed:
                try:
                    await flush_when_there_is_room(self._world, local_log, BACKOFF_MS)
                except StorageFailure as failure:
                    log.error("flush of %s: %s", local_log, failure)
                    failed = True
                owner.flushed(failed)
        finally:
            self._running.discard(key)
