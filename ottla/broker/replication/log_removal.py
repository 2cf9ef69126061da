"""Removes deleted logs from the disks on their threads, while the loop only removes them from memory.

Renaming waits for nothing but an earlier round; all that was deleted meanwhile shares the next one, with one sync per log
directory (`storage/directories/removal.py`). Unlinking takes a bounded number per call, so that other work gets the disk in between.
"""

from __future__ import annotations

import logging

from ottla.server.disk_queue import Priority
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)


class LogRemoval:
    """Renames and deletes the directories of deleted logs, in each log directory by itself."""

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
        """Unlink what was deleted long enough ago in a log directory."""
        now_ms, remove = self._world.clock.wall_ms(), self._logs.remove_deleted
        removed = 1
        while removed and not self._stopped:
            removed = await self._world.workers.on_disk(directory.path, Priority.REMOVAL, remove, directory, now_ms)
