"""The checkpoints of the log directories: what the open logs say at the moment, written as a whole.

`storage.checkpoint` has the files, and the entries that are lowered or forgotten in them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.storage import checkpoint
from ottla.storage.checkpoint import Offsets
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.open_logs import OpenLogs
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)


class Collected(NamedTuple):
    """The contents of a checkpoint, and what they were made of."""

    logs: list[Log]
    values: list[int | None]
    offsets: Offsets


class LogCheckpoints:
    """Writes the checkpoints, on any thread; with `only`, for this log directory. Without, for all of them."""

    def __init__(self, logs: OpenLogs) -> None:
        self._logs = logs
        self._collected: dict[tuple[str, str], Collected] = {}  # the last of each checkpoint, by directory and name
        self._complete: set[str] = set()  # directories whose logs are all open and recovered
        self._outdated: set[str] = set()  # directories where a checkpoint could not be written

    def begin(self, directory: LogDir) -> None:
        """All logs of the directory are open: from now on its checkpoints are written, and no entry is beyond a log's end."""
        ends = {(log.topic, log.partition): log.log_end_offset for log in self._logs.in_directory(directory)}
        self._logs.entries.lower_to_ends(directory.path, ends)
        self._complete.add(directory.path)

    def write_last(self) -> None:
        """Writes the checkpoints of a clean stop."""
        self._outdated.clear()
        self.write_recovery_points()
        self.write_high_watermarks()

    def is_complete(self, directory: LogDir) -> bool:
        """Returns True if the directory's checkpoints have all of its logs."""
        return directory.path in self._complete - self._outdated

    def write_recovery_points(self, only: LogDir | None = None) -> None:
        """Writes the recovery points, and the log start offsets that belong to them."""
        self._write(checkpoint.RECOVERY_POINT, lambda log: log.recovery_point_to_write, only)
        self.write_log_starts(only)

    def write_log_starts(self, only: LogDir | None = None) -> list[LogDir]:
        """Writes and syncs the log start offsets, so that DeleteRecords survives a crash. Returns the directories where this failed."""
        for directory in self._logs.directories:
            if only in (None, directory):
                self._logs.sync_names(directory)
        return self._write(
            checkpoint.LOG_START, lambda log: log.durability.log_start_to_write(log.log_start_offset) or None, only
        )

    def write_high_watermarks(self, only: LogDir | None = None) -> None:
        self._write(
            checkpoint.REPLICATION, lambda log: log.durability.high_watermark_to_write(log.high_watermark), only
        )

    def write_cleaned(self, only: LogDir | None = None) -> None:
        """Writes up to which offset each log is clean."""
        self._write(checkpoint.CLEANER, lambda log: log.cleaning.cleaned_until or None, only)

    def _write(self, name: str, value: Callable[[Log], int | None], only: LogDir | None = None) -> list[LogDir]:
        """Writes a checkpoint; returns the directories whose file is out of date."""
        missed: list[LogDir] = []
        for directory in self._logs.directories:
            if only is not None and directory is not only:
                continue
            if not directory.online:
                missed.append(directory)
                continue
            if directory.path not in self._complete:
                continue  # an interrupted start has not opened all of its logs: their entries must stay
            try:
                self._logs.entries.write(directory.path, name, partial(self._offsets_in, directory, name, value))
            except DiskFull as failure:
                logger.warning("%s is out of date: %s", name, failure)
                self._outdated.add(directory.path)
                missed.append(directory)
            except StorageFailure as failure:
                self._logs.directory_failed(directory, failure)
                missed.append(directory)
        return missed

    def _offsets_in(self, directory: LogDir, name: str, value: Callable[[Log], int | None]) -> Offsets:
        logs = self._logs.in_directory(directory)
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
