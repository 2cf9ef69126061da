"""The open logs of a node, by partition, by name and by log directory: their retention, and the removal of deleted ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from threading import Lock

from ottla.protocol.slotted import mutable
from ottla.protocol.work import DiskJob, Turn, Work
from ottla.storage import checkpoint
from ottla.storage.directories.log_checkpoints import LogCheckpoints
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files, Mappings
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import DELETE, LogSpec, name_with_suffix
from ottla.storage.log.retention import SEGMENTS_AT_ONCE, begin_retention
from ottla.storage.log_config import LogConfig

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
        self.removals = Removals(self)
        self.checkpoints = LogCheckpoints(files, directories, self.in_directory, self.directory_failed, self.sync_names)
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
        """Return the log that is to replace this partition's log from another directory."""
        return self._futures.get((topic_id, partition))

    def futures(self) -> list[Log]:
        return list(self._futures.values())

    def in_directory(self, directory: LogDir) -> list[Log]:
        return list(self._in[directory.path].values())

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
            lambda: self.checkpoints.forget(directory.path, name, lambda: not (place.exists or place.closed))
        )
        log.durability.call_before_truncation(
            lambda offset, start: self._lower_checkpoints(directory, log, offset, start)
        )

    def take_out(self, log: Log) -> LogDir:
        key = (log.topic_id, log.partition)
        if self._futures.get(key) is log:
            del self._futures[key]
            if (current := self._logs.get(key)) is not None:
                current.cleaning.move(False)
        else:
            del self._logs[key]
            del self._by_name[(log.topic, log.partition)]
        log.durability.leave()
        directory = self.directory_of(log)
        del self._in[directory.path][key]
        return directory

    def add_future(self, directory: LogDir, future: Log) -> None:
        self._futures[(future.topic_id, future.partition)] = future
        self.add_to(directory, future)

    def replace_by_future(self, future: Log) -> LogDir | None:
        """Make the future log the partition's log. Return the directory of the one that it replaces, None if there was none."""
        target, key = self.directory_of(future), (future.topic_id, future.partition)
        del self._futures[key]
        current = self._logs.get(key)
        source = self.take_out(current) if current is not None else None
        self.add(target, future)
        return source

    def clear(self) -> None:
        """Forget all logs, because they are closed."""
        self._logs.clear()
        self._by_name.clear()
        self._futures.clear()
        for logs in self._in.values():
            logs.clear()

    def names_unsynced(self, directory: LogDir) -> None:
        """Note that a log of the directory has taken the place of another one: its name is not synced."""
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
        """Take the directory offline; its logs stay readable as far as the disk can read them. Workers may call it."""
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
        """Sync the names of logs that have taken the place of others. Return False if the directory is offline."""
        renamed = self._renamed.get(directory.path)
        if directory.online and renamed is not None:
            try:
                self.files.sync_dir(directory.path)
            except StorageFailure as failure:
                self.directory_failed(directory, failure)
            else:
                if self._renamed.get(directory.path) == renamed:  # no other log has taken a name meanwhile
                    self._renamed.pop(directory.path, None)
        return directory.online

    def _lower_checkpoints(self, directory: LogDir, log: Log, offset: int, start: int | None) -> None:
        """Lower the log's checkpoints before a truncation: none may exceed the log's end after it (see `Durability.begin_truncation`).

        A log that this one has just replaced loses its name before, or it would be the longer of the two after a crash.
        """
        self.removals.settle(f"{place.path}/{log.topic}-{log.partition}" for place in self.directories)

        def wanted(name: str, now: int) -> int:
            offset_max = start if name == checkpoint.LOG_START and start is not None else min(now, offset)
            return (
                min(offset_max, log.durability.recovery_point_to_write(log.log_end_offset))
                if name == checkpoint.RECOVERY_POINT
                else offset_max
            )

        self.checkpoints.lower(directory.path, (log.topic, log.partition), wanted)


#: The cost, in a turn, of a look at a log, and of a segment that is removed: 10 us and 100 us, in records of a microsecond
#: each.
LOOKED_AT = 10
GONE = 100


def retaining(logs: OpenLogs, directory: LogDir, now_ms: int) -> Work[list[Log]]:
    """Return the logs from which segments have gone. The work is in turns of the event loop, its system calls on threads of the disk.

    A log that fails keeps its segments; the others go on, or the disk would fill up.
    """
    turn = Turn()
    changed: list[Log] = []
    for log in logs.in_directory(directory):
        # A future log follows the start of the log that it is to replace.
        if log.closed or log.failure is not None or logs.future(log.topic_id, log.partition) is log:
            continue
        if turn.spend(LOOKED_AT):
            yield None
        try:
            if (yield from _retain(log, now_ms, turn)):
                changed.append(log)
        except StorageFailure as failure:
            logger.warning("retention of %s: %s", log, failure)
        except Exception:  # a bug in one log must not keep the others from making room
            logger.exception("retention of %s", log)
    if changed:
        # One sync for all logs: removed segments must not come back after a crash.
        yield DiskJob(directory.path, partial(logs.checkpoints.write_log_starts, directory))
    return changed


def _retain(log: Log, now_ms: int, turn: Turn) -> Work[int]:
    count, disk_job_done = 0, False
    while (job := begin_retention(log, now_ms, disk_job_done=disk_job_done)) is not None:
        if isinstance(job, DiskJob):
            yield job
            disk_job_done = True
            continue
        yield DiskJob(log.partition_dir.log_dir, job.run)
        job.end()
        count += job.segments
        if job.segments < SEGMENTS_AT_ONCE:
            break
        if turn.spend(GONE * job.segments):
            yield None
    return count


#: The limit of one call of `remove_due`: flushes would wait for a worker that unlinks 1,000 directories.
REMOVED_AT_ONCE = 64
#: After this time a file that could not be unlinked is tried again; the next start of the node unlinks it, too.
RETRY_MS = 300_000


@mutable
class RemovedLog:
    """A log that is removed from memory, until the rename of its directory is synced."""

    log: Log
    directory: LogDir
    target: str
    due_ms: int
    #: The log directory of the future log that replaced it.
    replaced_by: LogDir | None
    #: The lock is held for the rename, never for a sync.
    lock: Lock
    renamed: bool = False


class Removals:
    """The deleted logs of a node until their directories are unlinked. All methods except `rename_in` and `remove_due` are for the thread that appends.

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

    def __init__(self, logs: OpenLogs) -> None:
        self._logs, self._files = logs, logs.files
        self._removed: dict[str, RemovedLog] = {}  # by the directory that is to be renamed
        # The files and the directories to unlink, with the time when each is due, by log directory.
        self._due_files: dict[str, dict[str, int]] = {}
        self._due_trees: dict[str, dict[str, int]] = {}

    def in_directory(self, directory: LogDir) -> list[RemovedLog]:
        """Return the logs of this log directory that are not yet renamed."""
        return [entry for entry in list(self._removed.values()) if entry.directory is directory]

    def add(self, log: Log, directory: LogDir, target: str, due_ms: int, replaced_by: LogDir | None = None) -> None:
        """Add a deleted or replaced log."""
        assert log.directory not in self._removed, "a log of this name could not have been made"
        self._removed[log.directory] = RemovedLog(log, directory, target, due_ms, replaced_by, Lock())

    def add_renamed(self, path: str, due_ms: int) -> None:
        """Add a directory that is renamed already."""
        self._due_trees.setdefault(path.rpartition("/")[0], {})[path] = due_ms

    def add_file(self, log: Log, path: str, due_ms: int) -> None:
        """Add a file of an existing log: of a segment that retention, truncation or compaction has removed."""
        self._due_files.setdefault(log.partition_dir.log_dir, {})[path] = due_ms

    def settle(self, paths: Iterable[str]) -> None:
        """Rename those of these directories that are pending, and sync the renames, so that a crash cannot undo them.

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
        """Return those of these directories that are to be renamed."""
        return [path for path in paths if path in self._removed]

    def rename_in(self, directory: LogDir) -> StorageFailure | None:
        """Rename the pending directories of a log directory and sync it once, on any thread. Return a failure."""
        entries = self.in_directory(directory)
        if not entries:
            return None
        failure: StorageFailure | None = None
        try:
            for entry in entries:
                # Without the sync a power loss could take the new name and keep the rename of the old log. If the new log's
                # directory is offline, the old one keeps its name: the next start chooses between the two.
                if entry.replaced_by is None or self._logs.sync_names(entry.replaced_by):
                    self._rename(entry)
            self._files.sync_dir(directory.path)
        except StorageFailure as error:
            if isinstance(error, DiskFull):
                return error  # retried by the next call
            failure = error
            self._logs.directory_failed(directory, error)
        for entry in entries:
            self._left(entry)
        return failure

    def _rename(self, entry: RemovedLog) -> None:
        with entry.lock:
            if not entry.renamed:
                entry.log.durability.unmap()
                self._files.rename(entry.log.directory, entry.target)
                entry.renamed = True

    def _left(self, entry: RemovedLog) -> None:
        """Mark a rename as synced, or its log directory as offline: the name is free."""
        with entry.lock:
            # It may have been removed by another thread, or replaced by a newer log.
            if self._removed.get(entry.log.directory) is entry:
                del self._removed[entry.log.directory]
                if entry.renamed and entry.directory.online:
                    self.add_renamed(entry.target, entry.due_ms)

    def remove_due(self, directory: LogDir, now_ms: int, limit: int = REMOVED_AT_ONCE) -> int:
        """Unlink due files and directories of a log directory, at most `limit`, on any thread; return how many it looked at.

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
