"""DeleteRecords on the disk, many requests at a time: group commit of the log start offsets, off the event loop.

One write per log directory runs at a time, on a worker. The requests that arrive meanwhile share the next one, so that a client
that purges thousands of partitions (Kafka Streams does after each commit) costs some syncs and no standstill.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.server.disk_queue import Priority
from ottla.server.isolation import isolated
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs

log = logging.getLogger(__name__)

#: Called with False when the offsets could not be written.
Written = Callable[[bool], None]


class LogStartWrites:
    """The writes of one node."""

    def __init__(self, world: World, logs: Logs) -> None:
        self._world = world
        self._logs = logs
        self._waiting: dict[str, list[Written]] = {}
        self._running: set[str] = set()

    def when_written(self, directory: LogDir, done: Written) -> None:
        """Call back once the log starts that the directory's logs have now are on its disk."""
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
