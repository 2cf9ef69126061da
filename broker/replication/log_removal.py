"""Removes deleted logs from the disk on a worker, while the loop only removes them from memory.

Renaming waits for nothing but an earlier round; all that was deleted meanwhile shares the next one, with one sync per log
directory (`storage/removal.py`). Unlinking takes a bounded number per call, so that flushes get the workers in between.
"""

from __future__ import annotations

import logging

from ottla.server.world import World
from ottla.storage.errors import StorageFailure
from ottla.storage.logs import Logs

log = logging.getLogger(__name__)


class LogRemoval:
    """Renames and deletes the directories of deleted logs on a worker."""

    def __init__(self, world: World, logs: Logs) -> None:
        self._world = world
        self._logs = logs
        self._renaming = False
        self._removing = False
        self._stopped = False

    def stop(self) -> None:
        """Stop. Removals in progress end by themselves; `Logs.end_close` renames the other directories, and the next start deletes them."""
        self._stopped = True

    def rename(self) -> None:
        """Logs may have been deleted: rename their directories soon."""
        if self._logs.deleted_to_rename and not self._renaming and not self._stopped:
            self._renaming = True
            self._world.spawn(self._rename(), "rename deleted logs")

    async def _rename(self) -> None:
        try:
            while self._logs.deleted_to_rename and not self._stopped:
                await self._world.workers.run(self._logs.rename_deleted)
        except StorageFailure as failure:
            log.error("deleted partitions keep their names for now: %s", failure)
        finally:
            self._renaming = False

    def remove(self) -> None:
        """Unlink what was deleted long enough ago."""
        self.rename()  # again what a full disk refused
        if not self._removing and not self._stopped:
            self._removing = True
            self._world.spawn(self._remove(), "remove deleted logs")

    async def _remove(self) -> None:
        now_ms = self._world.clock.wall_ms()
        try:
            removed = 1
            while removed and not self._stopped:
                removed = await self._world.workers.run(self._logs.remove_deleted, now_ms)
        except StorageFailure as failure:
            log.error("deleted logs were not removed: %s", failure)
        finally:
            self._removing = False
