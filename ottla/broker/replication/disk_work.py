"""Work of replicas on the threads of the disks, many requests at a time: group commit of flushes and log start offsets, and removal.

One of a kind runs at a time for each partition or log directory. Whatever arrives meanwhile shares the next one, so that a busy partition
pays for a few hundred flushes a second, not for one per request, and a client that purges thousands of partitions (Kafka Streams does
after each commit) costs some syncs and no standstill of the event loop.
With flush.messages=1 nothing unflushed is ever committed or
shown to a consumer: the high watermark waits for the disk as it waits for followers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ottla.protocol.records.batch import MAX_TIMESTAMP_AT, PRODUCER_ID_AT
from ottla.protocol.work import DiskJob
from ottla.server.clock import pause
from ottla.server.tasks import isolated
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: The interval of a leader's flushes while its disk has no room.
BACKOFF_MS = 1_000


class FlushOwner(Protocol):
    """The owner of a flush, which is notified of it: a partition."""

    @property
    def wants_flush(self) -> bool: ...

    @property
    def leader_log(self) -> Log | None: ...

    def flushed(self, failed: bool) -> None: ...


def append_job(own_log: Log | None, records: bytes | memoryview, now_ms: int) -> DiskJob | None:
    """Return the disk work that must come before a follower's log can take the records, if any."""
    if own_log is None:
        return None
    # The first batch decides whether the append begins with a roll by time.
    max_timestamp = int.from_bytes(records[MAX_TIMESTAMP_AT:PRODUCER_ID_AT], "big", signed=True)
    return own_log.room.disk_job(len(records), own_log.log_end_offset, max_timestamp, now_ms)


async def flush_log(world: World, local_log: Log, priority: Priority = Priority.ACKNOWLEDGE) -> bool:
    """Flush on a thread of its disk. Return False if the log was truncated or closed meanwhile; raise StorageFailure."""
    job = local_log.begin_flush()
    if job is None:
        return not local_log.closed
    await world.workers.on_disk(local_log.partition_dir.log_dir, priority, job.run)
    return local_log.end_flush(job, world.clock.wall_ms())


async def flush_when_there_is_room(world: World, local_log: Log, backoff_ms: int) -> bool:
    """Do what `flush_log` does, and try again each `backoff_ms` while the disk has no room; other failures are raised.

    A shortage changes nothing and takes no log directory offline, so nothing else would ever flush the records that wait for it.
    """
    is_short = False
    while True:
        try:
            return await flush_log(world, local_log)
        except DiskFull as shortage:
            if not is_short:  # only the first failure is logged
                log.error("flush of %s is tried again: %s", local_log, shortage)
            is_short = True
            await pause(world.clock, backoff_ms)


class GroupFlush:
    """The flushes of one node's partitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[int] = set()

    def request(self, owner: FlushOwner) -> None:
        """Flush soon; call `owner.flushed` after each flush, and repeat while `owner.wants_flush`."""
        key = id(owner)
        if key not in self._running:
            self._running.add(key)
            self._world.spawn(self._flush(key, owner), f"flush {owner}")

    async def _flush(self, key: int, owner: FlushOwner) -> None:
        failed = False
        try:
            # The log may be replaced by its future log meanwhile.
            while owner.wants_flush and not failed and (local_log := owner.leader_log) and not local_log.closed:
                try:
                    await flush_when_there_is_room(self._world, local_log, BACKOFF_MS)
                except StorageFailure as failure:
                    log.error("flush of %s: %s", local_log, failure)
                    # The waiting job is about another log if this partition has moved to another disk meanwhile.
                    failed = owner.leader_log in (local_log, None)
                owner.flushed(failed)
        finally:
            self._running.discard(key)


#: Called with False when the offsets could not be written.
Written = Callable[[bool], None]


class LogStartWrites:
    """DeleteRecords on the disk: the writes of log start offsets of one node."""

    def __init__(self, world: World, logs: Logs) -> None:
        self._world = world
        self._logs = logs
        self._waiting: dict[str, list[Written]] = {}
        self._running: set[str] = set()

    def when_written(self, directory: LogDir, done: Written) -> None:
        """Call back once the log start offsets that the logs of this directory have now are on its disk."""
        self._waiting.setdefault(directory.path, []).append(done)
        if directory.path not in self._running:
            self._running.add(directory.path)
            self._world.spawn(self._write_all(directory), f"log starts of {directory.path}")

    async def _write_all(self, directory: LogDir) -> None:
        try:
            while waiting := self._waiting.pop(directory.path, None):
                is_written = await self._write(directory)
                for done in waiting:
                    isolated(done, is_written)
        finally:
            self._running.discard(directory.path)

    async def _write(self, directory: LogDir) -> bool:
        write = self._logs.checkpoints.write_log_starts
        try:
            return not await self._world.workers.on_disk(directory.path, Priority.ACKNOWLEDGE, write, directory)
        except Exception:
            log.exception("The log start offsets of %s could not be written", directory.path)
            return False  # otherwise the requests would never be answered


class LogRemoval:
    """Removes deleted logs from the disks, in each log directory by itself, while the loop only removes them from memory.

    Renaming waits for nothing but an earlier round; all that was deleted meanwhile shares the next one, with one sync per log
    directory (`storage/directories/open_logs.py`). Unlinking takes a bounded number per call, so that other work gets the disk in between.
    """

    def __init__(self, world: World, logs: Logs) -> None:
        self._world = world
        self._logs = logs
        self._renaming: set[str] = set()  # the paths of the log directories where it is under way
        self._stopped = False

    def stop(self) -> None:
        """Stop. Removals in progress end by themselves; `Logs.end_close` renames the other directories, and the next start deletes them."""
        self._stopped = True

    def rename(self) -> None:
        """Logs may have been deleted: rename their directories soon."""
        for directory in self._logs.directories:
            due = directory.path not in self._renaming and self._logs.deleted_to_rename(directory)
            if due and not self._stopped:
                self._renaming.add(directory.path)
                self._world.spawn(self._rename(directory), f"rename deleted logs of {directory.path}")

    async def _rename(self, directory: LogDir) -> None:
        rename = self._logs.rename_deleted
        try:
            while self._logs.deleted_to_rename(directory) and not self._stopped:
                await self._world.workers.on_disk(directory.path, Priority.REMOVAL, rename, directory)
        except StorageFailure as failure:
            log.error("deleted partitions keep their names for now: %s", failure)
        finally:
            self._renaming.discard(directory.path)

    async def remove(self, directory: LogDir) -> None:
        """Unlink files in a log directory that were deleted long enough ago."""
        now_ms, remove = self._world.clock.wall_ms(), self._logs.remove_deleted
        removed = 1
        while removed and not self._stopped:
            removed = await self._world.workers.on_disk(directory.path, Priority.REMOVAL, remove, directory, now_ms)
