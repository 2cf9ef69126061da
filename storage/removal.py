"""Deleted logs on their way out: taken out of memory first, then renamed to `-delete`, then unlinked.

    in memory     at once, on the thread that appends: from then on nothing finds the log
    renamed       on any thread, all that wait together, with ONE sync per log directory; each sync of its own would hold
                  a topic of 1,000 partitions for seconds (3.9 ms each were measured)
    unlinked      after file.delete.delay.ms, on any thread, a bounded number per call

A process that ends between the steps leaves directories under their old names: their topic is not in the metadata any more, so
the next start sets them aside (`-stray`), and no part of the topic is served again. What is renamed already is unlinked then.
A new log of the same name waits for the rename (`settle`), or its files would be put into the old directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDir

logger = logging.getLogger(__name__)

#: How much one call of `remove_due` unlinks: a worker that unlinks 1,000 directories would keep flushes waiting.
REMOVED_AT_ONCE = 64


@dataclass(slots=True)
class Leaving:
    """A log that is not in memory any more, and whose directory still has its name or is not known to have lost it."""

    log: Log
    directory: LogDir
    target: str
    due_ms: int
    renamed: bool = False


class Removals:
    """See the module. Everything but `rename_all` and `remove_due` is for the thread that appends."""

    def __init__(self, files: Files, on_failed: Callable[[LogDir, StorageFailure], None]) -> None:
        self._files = files
        self._on_failed = on_failed
        self._leaving: dict[tuple[str, int], Leaving] = {}
        self._renaming = Lock()  # held for one rename, never for a sync
        self._due_trees: dict[str, int] = {}  # path -> due ms
        self._due_files: dict[str, int] = {}

    def __len__(self) -> int:
        """How many logs wait to be renamed."""
        return len(self._leaving)

    def add(self, log: Log, directory: LogDir, target: str, due_ms: int) -> None:
        """`log` has been deleted."""
        key = (log.topic, log.partition)
        assert key not in self._leaving, "a log of this name could not have been made"
        self._leaving[key] = Leaving(log, directory, target, due_ms)

    def add_renamed(self, path: str, due_ms: int) -> None:
        """A directory that has its last name already."""
        self._due_trees[path] = due_ms

    def add_file(self, path: str, due_ms: int) -> None:
        """A file of a log that stays: of a segment that retention, truncation or compaction has replaced."""
        self._due_files[path] = due_ms

    def settle(self, topic: str, partition: int) -> None:
        """No directory has this name when this returns, and none gets it back by a crash.

        Raises:
            StorageFailure: the directory could not be renamed.
        """
        if (topic, partition) in self._leaving:
            failure = self.rename_all()
            if (topic, partition) in self._leaving:
                assert failure is not None
                raise failure

    def rename_all(self) -> StorageFailure | None:
        """Renames every log that waits, and syncs each log directory once. On any thread. Gives the last failure."""
        failure: StorageFailure | None = None
        waiting: dict[str, list[Leaving]] = {}
        for entry in list(self._leaving.values()):
            waiting.setdefault(entry.directory.path, []).append(entry)
        for entries in waiting.values():
            directory = entries[0].directory
            try:
                for entry in entries:
                    self._rename(entry)
                self._files.sync_dir(directory.path)
            except StorageFailure as error:
                failure = error
                if isinstance(error, DiskFull):
                    continue  # tried again with the next ones
                self._on_failed(directory, error)
            for entry in entries:
                self._left(entry)
        return failure

    def _rename(self, entry: Leaving) -> None:
        with self._renaming:
            if not entry.renamed:
                entry.log.unmap()
                self._files.rename(entry.log.directory, entry.target)
                entry.renamed = True

    def _left(self, entry: Leaving) -> None:
        """Its name is free for good, or its directory is of no use any more."""
        key = (entry.log.topic, entry.log.partition)
        with self._renaming:
            if self._leaving.get(key) is entry:  # not yet taken out by another thread, nor succeeded by a newer log
                del self._leaving[key]
                if entry.renamed and entry.directory.online:
                    self._due_trees[entry.target] = entry.due_ms

    def remove_due(self, now_ms: int, limit: int = REMOVED_AT_ONCE) -> int:
        """Unlinks what is due, up to `limit` of it, and returns how many files and directories went. On any thread."""
        count = 0
        for waiting, remove in ((self._due_files, self._files.remove), (self._due_trees, self._files.remove_tree)):
            due = [path for path, due_ms in list(waiting.items()) if due_ms <= now_ms]
            for path in due[: limit - count]:
                remove(path)
                waiting.pop(path, None)
                count += 1
        return count
