"""The open logs of a node, by partition, by name and by log directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random

from ottla.storage import checkpoint
from ottla.storage.checkpoint import OffsetCheckpoints
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.removal import Removals
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import DELETE, LogSpec, name_with_suffix
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.mappings import Mappings

logger = logging.getLogger(__name__)

Key = tuple[bytes, int]


class OpenLogs:
    """The open logs: those of the partitions, and the future logs that are to replace others (future_logs.py)."""

    def __init__(self, files: Files, directories: list[LogDir], rng: Random, mappings: Mappings) -> None:
        self.files = files
        self.directories = directories
        self.mappings = mappings
        self.on_directory_failed: Callable[[LogDir], None] | None = None
        self._rng = rng
        self._logs: dict[Key, Log] = {}
        self._by_name: dict[tuple[str, int], Log] = {}
        #: They are in `_in` as well, so that checkpoints and failures include them.
        self._futures: dict[Key, Log] = {}
        self._by_path = {directory.path: directory for directory in directories}
        self._in: dict[str, dict[Key, Log]] = {directory.path: {} for directory in directories}
        self.removals = Removals(files, self.directory_failed, self.sync_names)
        #: What the checkpoints of the directories say.
        self.entries = OffsetCheckpoints(files, self._by_path)
        # Directories where logs have taken other ones' places since their names were synced, and how many.
        self._renamed: dict[str, int] = {}
        # Logs that have asked for room, or changed otherwise, since the last flush check; a dict keeps their order.
        self.grown: dict[Log, None] = {}

    def spec(self, path: str, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int) -> LogSpec:
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
        return self._by_path[log.partition_dir.log_dir]

    def future(self, topic_id: bytes, partition: int) -> Log | None:
        """Returns the log that is to replace this partition's log from another directory."""
        return self._futures.get((topic_id, partition))

    def futures(self) -> list[Log]:
        return list(self._futures.values())

    def in_directory(self, directory: LogDir) -> list[Log]:
        return list(self._in[directory.path].values())

    def count(self, directory: LogDir) -> int:
        return len(self._in[directory.path])

    # Changing

    def add(self, directory: LogDir, log: Log) -> None:
        key = (log.topic_id, log.partition)
        other = self._by_name.get((log.topic, log.partition))
        if other is not None:
            raise StorageFailure(log.directory, f"{log.topic}-{log.partition} is in {other.directory} as well")
        self._logs[key] = log
        self._by_name[(log.topic, log.partition)] = log
        self.add_to(directory, log)

    def add_to(self, directory: LogDir, log: Log) -> None:
        self._in[directory.path][(log.topic_id, log.partition)] = log
        name = (log.topic, log.partition)
        place = log.partition_dir
        log.room.call_on_growth(lambda: self.grown.setdefault(log))
        place.call_on_failure(lambda failure: self.directory_failed(directory, failure))
        place.call_before_files(
            lambda: self.entries.forget(directory.path, name, lambda: not (place.exists or place.closed))
        )
        log.durability.call_before_truncation(
            lambda offset, start: self._lower_checkpoints(directory, log, offset, start)
        )

    def take_out(self, log: Log) -> LogDir:
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

    def add_future(self, directory: LogDir, future: Log) -> None:
        self._futures[(future.topic_id, future.partition)] = future
        self.add_to(directory, future)

    def replace_by_future(self, future: Log) -> LogDir | None:
        """The future log becomes the partition's log. Returns the directory of the one that it replaces, None if there was none."""
        target, key = self.directory_of(future), (future.topic_id, future.partition)
        del self._futures[key]
        current = self._logs.get(key)
        source = self.take_out(current) if current is not None else None
        self.add(target, future)
        return source

    def clear(self) -> None:
        """All logs are closed."""
        self._logs.clear()
        self._by_name.clear()
        self._futures.clear()
        for logs in self._in.values():
            logs.clear()

    def names_unsynced(self, directory: LogDir) -> None:
        """A log of the directory has taken another one's place: its name is not synced."""
        self._renamed[directory.path] = self._renamed.get(directory.path, 0) + 1

    def remove_files(self, log: Log, directory: LogDir, now_ms: int, replaced_by: LogDir | None = None) -> None:
        target = self.name_away(directory, log.topic, log.partition, DELETE)
        self.removals.add(log, directory, target, now_ms + log.config.file_delete_delay_ms, replaced_by)

    def path_of(self, directory: LogDir, log: Log) -> str:
        return f"{directory.path}/{log.topic}-{log.partition}"

    def paths_of(self, topic: str, partition: int) -> Iterable[str]:
        return [f"{directory.path}/{topic}-{partition}" for directory in self.directories]

    def name_away(self, directory: LogDir, topic: str, partition: int, suffix: str) -> str:
        return f"{directory.path}/{name_with_suffix(topic, partition, self._rng.randbytes(16), suffix)}"

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

    def _lower_checkpoints(self, directory: LogDir, log: Log, offset: int, start: int | None) -> None:
        """Lowers the log's checkpoints before a truncation: none may exceed the log's end after it (see `Durability.begin_truncation`).

        A log that this one has just replaced loses its name before, or it would be the longer of the two after a crash.
        """
        self.removals.settle(f"{place.path}/{log.topic}-{log.partition}" for place in self.directories)

        def wanted(name: str, now: int) -> int:
            offset_max = start if name == checkpoint.LOG_START and start is not None else min(now, offset)
            return min(offset_max, log.recovery_point_to_write) if name == checkpoint.RECOVERY_POINT else offset_max

        self.entries.lower(directory.path, (log.topic, log.partition), wanted)
