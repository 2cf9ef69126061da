"""The checkpoints of the log directories: read at start, written as a whole, and lowered before records that they cover are
removed.

A checkpoint that exceeds a log's end would cover the records that are appended there next. So the entries are lowered before a
truncation, when a log turns out to be shorter at the start, and when a partition's name gets a new log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import NamedTuple

from ottla.storage import checkpoint
from ottla.storage.checkpoint import NAMES, Offsets, read_offsets, write_offsets
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import CorruptFile, DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)


class Collected(NamedTuple):
    """The contents of a checkpoint, and the offsets of which they were made."""

    logs: list[Log]
    values: list[int | None]
    offsets: Offsets


class LogCheckpoints:
    """The checkpoints of the log directories, and their files.

    The methods named `write_...` write the present offsets of the open logs, on any thread: with `only` for this log directory,
    else for all of them. The others raise `StorageFailure` if a file cannot be written; log directories are given to them by
    their paths.
    """

    def __init__(
        self,
        files: Files,
        directories: list[LogDir],
        logs_in: Callable[[LogDir], list[Log]],
        on_failed: Callable[[LogDir, StorageFailure], None],
        sync_names: Callable[[LogDir], bool],
    ) -> None:
        self._files, self._directories = files, directories
        self._logs_in, self._on_failed, self._sync_names = logs_in, on_failed, sync_names
        self._contents: dict[str, Offsets] = {}  # the contents of the files, by path
        self._written: set[str] = set()  # files that only this process has written
        # Workers write the checkpoints; the lock serializes the writes of one file. A disk that hangs does not keep the checkpoints of
        # other disks waiting.
        self._locks = {(directory.path, name): Lock() for directory in directories for name in NAMES}
        self._collected: dict[tuple[str, str], Collected] = {}  # the last of each checkpoint, by directory and name
        self._complete: set[str] = set()  # directories whose logs are all open and recovered
        self._outdated: set[str] = set()  # directories where a checkpoint could not be written

    def read(self, directory: str) -> None:
        """Read the checkpoints. A damaged one counts as missing: the logs are then read from their start."""
        for name in NAMES:
            path = f"{directory}/{name}"
            try:
                # Kafka creates them empty, and writes them once there is something to write.
                offsets = read_offsets(self._files, path) if self._files.size(path) else {}
            except CorruptFile as error:
                logger.warning("%s: ignored", error)
                offsets = {}
            self._contents[path] = offsets

    def known(self, directory: str, name: str, key: tuple[str, int]) -> int:
        """Return the offset in the file, or 0."""
        return self._of(directory, name).get(key, 0)

    def begin(self, directory: LogDir) -> None:
        """Begin to write the directory's checkpoints: all of its logs are open, and no entry may exceed a log's end."""
        ends = {(log.topic, log.partition): log.log_end_offset for log in self._logs_in(directory)}
        self._lower_to_ends(directory.path, ends)
        self._complete.add(directory.path)

    def write_last(self) -> None:
        """Write the checkpoints of a clean stop."""
        self._outdated.clear()
        self.write_recovery_points()
        self.write_high_watermarks()

    def is_complete(self, directory: LogDir) -> bool:
        """Return True if the directory's checkpoints have all of its logs."""
        return directory.path in self._complete - self._outdated

    def write_recovery_points(self, only: LogDir | None = None) -> None:
        """Write the recovery points, and the log start offsets that belong to them."""
        self._write(
            checkpoint.RECOVERY_POINT, lambda log: log.durability.recovery_point_to_write(log.log_end_offset), only
        )
        self.write_log_starts(only)

    def write_log_starts(self, only: LogDir | None = None) -> list[LogDir]:
        """Write and sync the log start offsets, so that DeleteRecords survives a crash. Return the directories where this failed."""
        for directory in self._directories if only is None else [only]:
            self._sync_names(directory)
        return self._write(
            checkpoint.LOG_START, lambda log: log.durability.log_start_to_write(log.log_start_offset) or None, only
        )

    def write_high_watermarks(self, only: LogDir | None = None) -> None:
        self._write(
            checkpoint.REPLICATION, lambda log: log.durability.high_watermark_to_write(log.high_watermark), only
        )

    def write_cleaned(self, only: LogDir | None = None) -> None:
        """Write up to which offset each log is clean."""
        self._write(checkpoint.CLEANER, lambda log: log.cleaning.cleaned_until or None, only)

    def _write(self, name: str, value: Callable[[Log], int | None], only: LogDir | None) -> list[LogDir]:
        """Write a checkpoint; return the directories whose file is out of date."""
        missed: list[LogDir] = []
        for directory in self._directories if only is None else [only]:
            if not directory.online:
                missed.append(directory)
                continue
            if directory.path not in self._complete:
                continue  # an interrupted start has not opened all of its logs: their entries must stay
            try:
                # Collected under the lock, so that an older collection does not replace a newer.
                with self._locks[directory.path, name]:
                    self._replace(directory.path, name, self._offsets_in(directory, name, value))
            except DiskFull as failure:
                logger.warning("%s is out of date: %s", name, failure)
                self._outdated.add(directory.path)
                missed.append(directory)
            except StorageFailure as failure:
                self._on_failed(directory, failure)
                missed.append(directory)
        return missed

    def _offsets_in(self, directory: LogDir, name: str, value: Callable[[Log], int | None]) -> Offsets:
        logs = self._logs_in(directory)
        values = [value(log) for log in logs]
        collected = self._collected.get((directory.path, name))
        if collected is None or collected.values != values or collected.logs != logs:
            # The names of 10,000 partitions take four times as long as their offsets, and most checkpoints say the same as the last.
            offsets = {
                (log.topic, log.partition): offset
                for log, offset in zip(logs, values, strict=True)
                if offset is not None
            }
            collected = self._collected[directory.path, name] = Collected(logs, values, offsets)
        return collected.offsets

    # Entries

    def lower(self, directory: str, key: tuple[str, int], wanted: Callable[[str, int], int]) -> None:
        """Replace the entries of one partition: `wanted` gets the name of the checkpoint and the offset in it."""
        for name in NAMES:
            with self._locks[directory, name]:
                now = self.known(directory, name, key)
                offset = wanted(name, now)
                if offset != now:
                    self._replace(directory, name, {**self._of(directory, name), key: offset})

    def _lower_to_ends(self, directory: str, ends: Mapping[tuple[str, int], int]) -> None:
        """Lower entries beyond a log's end."""
        for name in NAMES:
            with self._locks[directory, name]:
                known = self._of(directory, name)
                lowered = {key: min(offset, ends[key]) for key, offset in known.items() if key in ends}
                if any(known[key] != offset for key, offset in lowered.items()):
                    self._replace(directory, name, lowered)

    def forget(self, directory: str, key: tuple[str, int], is_wanted: Callable[[], bool]) -> None:
        """Remove a deleted partition, so that its offsets do not apply to a new topic of the same name, on any thread.

        Once the new one has files, the offsets are its own: then it is not `is_wanted` any more.
        """
        for name in NAMES:
            with self._locks[directory, name]:
                # An entry of 0 is valid for a new topic, too; each write costs time for all partitions.
                if is_wanted() and self.known(directory, name, key):
                    offsets = self._of(directory, name)
                    self._replace(directory, name, {k: offset for k, offset in offsets.items() if k != key})

    def _of(self, directory: str, name: str) -> Offsets:
        return self._contents.get(f"{directory}/{name}", {})

    def _replace(self, directory: str, name: str, offsets: Offsets) -> None:
        path = f"{directory}/{name}"
        known = self._contents.get(path)
        if path in self._written and (offsets is known or offsets == known) and self._files.exists(path):
            return  # the file still exists: a missing disk is noticed even without writes
        write_offsets(self._files, path, offsets)
        self._contents[path] = offsets
        self._written.add(path)
