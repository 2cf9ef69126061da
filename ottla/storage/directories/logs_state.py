"""The state of all logs of a node: the open logs, the log directory of each, and their checkpoints. `Logs` (logs.py) opens, creates and closes them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple
from weakref import WeakValueDictionary

from ottla.storage import checkpoint
from ottla.storage.checkpoint import OffsetCheckpoints, Offsets
from ottla.storage.config import LogConfig
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.removal import Removals
from ottla.storage.errors import DamagedPartition, DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log
from ottla.storage.log.log_state import LogSpec, LogState
from ottla.storage.segment.segment_file import Mappings

logger = logging.getLogger(__name__)

Key = tuple[bytes, int]


class Collected(NamedTuple):
    """The contents of a checkpoint, and what they were made of."""

    logs: list[Log]
    values: list[int | None]
    offsets: Offsets


class LogsState:
    """The open logs of a node by partition, with their log directories."""

    def __init__(self, files: Files, directories: list[LogDir], rng: Random, mappings: Mappings | None = None) -> None:
        self.files = files
        self.directories = directories
        self.mappings = mappings or Mappings()
        self.previous_broker_epoch = -1  # the broker epoch at the last clean stop, -1 after a crash (KIP-966)
        self.on_directory_failed: Callable[[LogDir], None] | None = None
        self._rng = rng
        self._logs: dict[Key, Log] = {}
        self._by_name: dict[tuple[str, int], Log] = {}
        #: The logs that are to replace others (future_logs.py). They are in `_in`, so that checkpoints and failures include them.
        self._futures: dict[Key, Log] = {}
        self._by_path = {directory.path: directory for directory in directories}
        self._in: dict[str, dict[Key, Log]] = {directory.path: {} for directory in directories}
        self._removals = Removals(files, self.directory_failed, self.sync_names)
        self._checkpoints = OffsetCheckpoints(files, self._by_path)
        # Directories where logs have taken other ones' places since their names were synced, and how many.
        self._renamed: dict[str, int] = {}
        self._collected: dict[tuple[str, str], Collected] = {}  # the last of each checkpoint, by directory and name
        self._opened: set[str] = set()  # directories whose logs are all open and recovered
        self._unclean: set[str] = set()  # directories where a log could not be closed
        self._outdated: set[str] = set()  # directories where a checkpoint could not be written
        #: The logs of each topic that may have no files yet, in the order of their creation. The logs refer to it.
        self._without_files: WeakValueDictionary[tuple[bytes, str], deque[LogState]] = WeakValueDictionary()
        # Logs that have asked for room, or changed otherwise, since the last flush check; a dict keeps their order.
        self._grown: dict[LogState, None] = {}
        self._preferred: dict[tuple[str, int], LogDir] = {}  # directories for partitions that are not here yet
        self._damaged: dict[tuple[str, int], DamagedPartition] = {}  # partitions whose files cannot be opened

    def _spec(self, path: str, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int) -> LogSpec:
        return LogSpec(self.files, self.mappings, path, topic, partition, topic_id, config, now_ms, self._rng.random())

    # Finding

    def get(self, topic_id: bytes, partition: int) -> Log | None:
        return self._logs.get((topic_id, partition))

    def by_name(self, topic: str, partition: int) -> Log | None:
        return self._by_name.get((topic, partition))

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def directory_of(self, log: Log) -> LogDir:
        return self._by_path[log.log_dir]

    def future(self, topic_id: bytes, partition: int) -> Log | None:
        """Returns the log that is to replace this partition's log from another directory."""
        return self._futures.get((topic_id, partition))

    def futures(self) -> list[Log]:
        return list(self._futures.values())

    def in_directory(self, directory: LogDir) -> list[Log]:
        return list(self._in[directory.path].values())

    def _add(self, directory: LogDir, log: Log) -> None:
        key = (log.topic_id, log.partition)
        other = self._by_name.get((log.topic, log.partition))
        if other is not None:
            raise StorageFailure(log.directory, f"{log.topic}-{log.partition} is in {other.directory} as well")
        self._logs[key] = log
        self._by_name[(log.topic, log.partition)] = log
        self._add_to(directory, log)

    def _add_to(self, directory: LogDir, log: Log) -> None:
        self._in[directory.path][(log.topic_id, log.partition)] = log
        name = (log.topic, log.partition)
        log.join(
            self._grown,
            on_failure=lambda failure: self.directory_failed(directory, failure),
            before_files=lambda: self._checkpoints.forget(
                directory.path, name, lambda: not (log.partition_dir.exists or log.closed)
            ),
            before_truncation=lambda offset, start: self._lower_checkpoints(directory, log, offset, start),
        )

    def _take_out(self, log: Log) -> LogDir:
        key = (log.topic_id, log.partition)
        if self._futures.get(key) is log:
            del self._futures[key]
            if (current := self._logs.get(key)) is not None:
                current.cleaning.end_move()
        else:
            del self._logs[key]
            del self._by_name[(log.topic, log.partition)]
        log.leave()
        directory = self.directory_of(log)
        del self._in[directory.path][key]
        return directory

    # Failed directories

    @property
    def offline_directories(self) -> list[LogDir]:
        return [directory for directory in self.directories if not directory.online]

    def directory_failed(self, directory: LogDir, failure: StorageFailure) -> None:
        """Takes the directory offline; its logs stay readable as far as the disk can read them. Workers may call it."""
        if directory.failure is not None:
            return
        directory.fail(failure)
        logger.error("log directory %s is offline: %s", directory.path, failure)
        for log in self.in_directory(directory):
            if log.failure is None:
                log.fail(failure)
        if self.on_directory_failed is not None:
            self.on_directory_failed(directory)

    # Checkpoints

    # Each of these runs on any thread; with `only`, for this log directory. Without, for all of them.

    def write_recovery_points(self, only: LogDir | None = None) -> None:
        """Writes the recovery points, and the log start offsets that belong to them."""
        self._write(checkpoint.RECOVERY_POINT, lambda log: log.recovery_point_to_write, only)
        self.write_log_starts(only)

    def write_log_starts(self, only: LogDir | None = None) -> list[LogDir]:
        """Writes and syncs the log start offsets, so that DeleteRecords survives a crash. Returns the directories where this failed."""
        for directory in self.directories:
            if directory.path in self._renamed and only in (None, directory):
                self.sync_names(directory)
        return self._write(checkpoint.LOG_START, lambda log: log.log_start_to_write or None, only)

    def sync_names(self, directory: LogDir) -> bool:
        """Syncs the names of the logs that have taken another one's place. Returns False if the directory is offline."""
        renamed = self._renamed.get(directory.path)
        if directory.online and renamed is not None:
            try:
                self.files.sync_dir(directory.path)
            except StorageFailure as failure:
                self.directory_failed(directory, failure)
            else:
                if self._renamed.get(directory.path) == renamed:  # no other one meanwhile
                    self._renamed.pop(directory.path, None)
        return directory.online

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
        for directory in self.directories:
            if only is not None and directory is not only:
                continue
            if not directory.online:
                missed.append(directory)
                continue
            if directory.path not in self._opened:
                continue  # an interrupted start has not opened all of its logs: their entries must stay
            try:
                self._checkpoints.write(directory.path, name, partial(self._offsets_in, directory, name, value))
            except DiskFull as failure:
                logger.warning("%s is out of date: %s", name, failure)
                self._outdated.add(directory.path)
                missed.append(directory)
            except StorageFailure as failure:
                self.directory_failed(directory, failure)
                missed.append(directory)
        return missed

    def _offsets_in(self, directory: LogDir, name: str, value: Callable[[Log], int | None]) -> Offsets:
        logs = self.in_directory(directory)
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

    def _lower_checkpoints(self, directory: LogDir, log: Log, offset: int, start: int | None) -> None:
        """Lowers the log's checkpoints before a truncation: none may exceed the log's end after it (see `LogState.join`).

        A log that this one has just replaced loses its name before, or it would be the longer of the two after a crash.
        """
        self._removals.settle(f"{place.path}/{log.topic}-{log.partition}" for place in self.directories)

        def wanted(name: str, now: int) -> int:
            offset_max = start if name == checkpoint.LOG_START and start is not None else min(now, offset)
            return min(offset_max, log.recovery_point_to_write) if name == checkpoint.RECOVERY_POINT else offset_max

        self._checkpoints.lower(directory.path, (log.topic, log.partition), wanted)
