"""Removal of deleted logs: from memory first, then the directory is renamed to `-delete`, then it is unlinked.

    from memory   at once, on the thread that appends: from then on lookups do not find the log
    rename        on any thread, all pending ones together, with ONE sync per log directory: one sync per partition would
                  take seconds for a topic of 1,000 partitions (3.9 ms each were measured)
    unlink        after file.delete.delay.ms, on any thread, a bounded number per call

Each log directory is renamed and unlinked by itself: a disk that is full, fails or hangs keeps the files of no other disk.

A process that ends between the steps leaves directories under their old names. Their topic is not in the metadata any more, so
the next start sets them aside (`-stray`) and does not serve the topic. Renamed directories are unlinked by the next start.
A new log of the same name waits for the rename (`settle`), or its files would be put into the old directory.
A log that was replaced by its future log (future_logs.py) is renamed after the replacement's name is on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

#: The limit of one call of `remove_due`: flushes would wait for a worker that unlinks 1,000 directories.
REMOVED_AT_ONCE = 64
#: After this time a file that could not be unlinked is tried again; the next start of the node unlinks it, too.
RETRY_MS = 300_000


@dataclass(slots=True)
class RemovedLog:
    """A log that is removed from memory, until the rename of its directory is synced."""

    log: Log
    directory: LogDir
    target: str
    due_ms: int
    #: The log directory of the future log that replaced it.
    replaced_by: LogDir | None
    #: Held for the rename, never for a sync.
    lock: Lock
    renamed: bool = False


class Removals:
    """The deleted logs of a node until their directories are unlinked. All methods except `rename_in` and `remove_due` are for the thread that appends."""

    def __init__(
        self,
        files: Files,
        on_failed: Callable[[LogDir, StorageFailure], None],
        sync_names: Callable[[LogDir], bool],
    ) -> None:
        self._files = files
        self._on_failed = on_failed
        self._sync_names = sync_names
        self._removed: dict[str, RemovedLog] = {}  # by the directory that is to be renamed
        # The files and the directories to unlink, with the time when each is due, by log directory.
        self._due_files: dict[str, dict[str, int]] = {}
        self._due_trees: dict[str, dict[str, int]] = {}

    def in_directory(self, directory: LogDir) -> list[RemovedLog]:
        """Returns the logs of this log directory that are not yet renamed."""
        return [entry for entry in list(self._removed.values()) if entry.directory is directory]

    def add(self, log: Log, directory: LogDir, target: str, due_ms: int, replaced_by: LogDir | None = None) -> None:
        """Adds a deleted or replaced log."""
        assert log.directory not in self._removed, "a log of this name could not have been made"
        self._removed[log.directory] = RemovedLog(log, directory, target, due_ms, replaced_by, Lock())

    def add_renamed(self, path: str, due_ms: int) -> None:
        """Adds a directory that is renamed already."""
        self._due_trees.setdefault(path.rpartition("/")[0], {})[path] = due_ms

    def add_file(self, log: Log, path: str, due_ms: int) -> None:
        """Adds a file of an existing log: of a segment that retention, truncation or compaction has removed."""
        self._due_files.setdefault(log.partition_dir.log_dir, {})[path] = due_ms

    def settle(self, paths: Iterable[str]) -> None:
        """Renames those of these directories that are pending, and syncs the renames, so that a crash cannot undo them.

        Raises:
            StorageFailure: a directory could not be renamed.
        """
        pending = self.pending(paths)
        if pending:
            places = {entry.directory.path: entry.directory for entry in map(self._removed.__getitem__, pending)}
            failures = [self.rename_in(directory) for directory in places.values()]
            if self.pending(pending):
                raise next(failure for failure in failures if failure is not None)

    def pending(self, paths: Iterable[str]) -> list[str]:
        """Returns those of these directories that are to be renamed."""
        return [path for path in paths if path in self._removed]

    def rename_in(self, directory: LogDir) -> StorageFailure | None:
        """Renames the pending directories of a log directory and syncs it once, on any thread. Returns a failure."""
        entries = self.in_directory(directory)
        if not entries:
            return None
        failure: StorageFailure | None = None
        try:
            for entry in entries:
                # Without the sync a power loss could take the new name and keep the rename of the old log. If the new log's
                # directory is offline, the old one keeps its name: the next start chooses between the two.
                if entry.replaced_by is None or self._sync_names(entry.replaced_by):
                    self._rename(entry)
            self._files.sync_dir(directory.path)
        except StorageFailure as error:
            if isinstance(error, DiskFull):
                return error  # retried by the next call
            failure = error
            self._on_failed(directory, error)
        for entry in entries:
            self._left(entry)
        return failure

    def _rename(self, entry: RemovedLog) -> None:
        with entry.lock:
            if not entry.renamed:
                entry.log.unmap()
                self._files.rename(entry.log.directory, entry.target)
                entry.renamed = True

    def _left(self, entry: RemovedLog) -> None:
        """Marks a rename as synced, or its log directory as offline: the name is free."""
        with entry.lock:
            # It may have been removed by another thread, or replaced by a newer log.
            if self._removed.get(entry.log.directory) is entry:
                del self._removed[entry.log.directory]
                if entry.renamed and entry.directory.online:
                    self.add_renamed(entry.target, entry.due_ms)

    def remove_due(self, directory: LogDir, now_ms: int, limit: int = REMOVED_AT_ONCE) -> int:
        """Unlinks due files and directories of a log directory, at most `limit`, on any thread; returns how many it looked at.

        What cannot be unlinked is tried again after `RETRY_MS`.
        """
        count = 0
        for all_due, remove in ((self._due_files, self._files.remove), (self._due_trees, self._files.remove_tree)):
            waiting = all_due.get(directory.path, {})
            due = [path for path, due_ms in list(waiting.items()) if due_ms <= now_ms]
            for path in due[: limit - count]:
                count += 1
                try:
                    remove(path)
                except StorageFailure as failure:
                    logger.warning("%s stays until the next attempt in %d s: %s", path, RETRY_MS // 1000, failure)
                    waiting[path] = now_ms + RETRY_MS
                else:
                    waiting.pop(path, None)
        return count
