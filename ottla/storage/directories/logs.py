"""All logs of a node over its log directories: open, create, delete, flush, close. open_logs.py finds them.

This module does not know the cluster's metadata: the broker compares the partitions with it and calls `create`, `delete`
or `set_aside`. The metadata log (`__cluster_metadata-0`) is not one of these logs: the quorum opens it itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from weakref import WeakValueDictionary

from ottla.storage import checkpoint
from ottla.storage.directories import log_dirs
from ottla.storage.directories.future_logs import FutureLogs
from ottla.storage.directories.log_dirs import RESERVED_IDS, LogDir
from ottla.storage.directories.open_logs import REMOVED_AT_ONCE, OpenLogs
from ottla.storage.directories.recovery import new_log, open_log
from ottla.storage.errors import CorruptFile, DamagedPartition, DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.files import Files, Mappings
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import DELETE, STRAY, future_partition_of, partition_of, read_topic_id
from ottla.storage.log.room import Room
from ottla.storage.log_config import NEVER, LogConfig
from ottla.storage.segment.walk import REMEDY, DamagedLog

logger = logging.getLogger(__name__)

METADATA_LOG_DIR = "__cluster_metadata-0"
# Recovery after a crash reads the unflushed part of each log: this many bytes take about 0.1 s (1 s with 100-byte batches).
RECOVERY_BYTES_MAX = 64 << 20

ConfigFor = Callable[[str, bytes], LogConfig]


class Logs:
    """The logs of a node in its log directories."""

    def __init__(self, files: Files, directories: list[LogDir], rng: Random, mappings: Mappings | None = None) -> None:
        self.files, self.directories = files, directories
        self.open = OpenLogs(files, directories, rng, Mappings() if mappings is None else mappings)
        self.checkpoints = self.open.checkpoints
        self.futures = FutureLogs(self.open)
        self.previous_broker_epoch = -1  # the broker epoch at the last clean stop, -1 after a crash (KIP-966)
        self._unclean: set[str] = set()  # directories where a log could not be closed
        #: The logs of each topic that may have no files yet, in the order of their creation. The logs refer to it.
        self._without_files: WeakValueDictionary[tuple[bytes, str], deque[Room]] = WeakValueDictionary()
        #: The partitions whose files cannot be opened, by topic and number.
        self.damaged: dict[tuple[str, int], DamagedPartition] = {}

    # Opening

    def open_all(self, config_for: ConfigFor, now_ms: int) -> None:
        """Open every partition in the directories. A directory that fails goes offline; the others are opened nevertheless."""
        epochs: list[int] = []
        for directory in self.directories:
            if directory.online:
                try:
                    epochs.append(self._open_directory(directory, config_for, now_ms))
                except StorageFailure as failure:
                    self.open.directory_failed(directory, failure)
        self.futures.settle_names(now_ms)
        self.previous_broker_epoch = epochs[0] if epochs and len(set(epochs)) == 1 else -1

    def _open_directory(self, directory: LogDir, config_for: ConfigFor, now_ms: int) -> int:
        clean, broker_epoch = log_dirs.take_clean_mark(self.files, directory.path)
        self.checkpoints.read(directory.path)
        logger.info(
            "%s recovery of the logs in %s, as %s clean shutdown file was found",
            "Skipping" if clean else "Beginning",
            directory.path,
            "a" if clean else "no",
        )
        for name in self.files.list_dir(directory.path):
            path = f"{directory.path}/{name}"
            if name.endswith(DELETE):
                self.open.removals.add_renamed(path, now_ms)
                continue
            found = partition_of(name)
            is_future = found is None
            found = found or future_partition_of(name)
            if found is None or name == METADATA_LOG_DIR:
                continue
            try:
                log = self._open_partition(directory, name, found, config_for, clean, now_ms)
            except StorageFailure:
                raise
            except Exception as error:
                if is_future:
                    logger.warning("%s is copied again: %s", path, error)
                    self._rename_away(directory, path, *found, DELETE)
                else:
                    self._leave_closed(path, found, error)
            else:
                self._add_opened(directory, log, is_future, now_ms)
        self.checkpoints.begin(directory)
        return broker_epoch

    def _add_opened(self, directory: LogDir, log: Log | None, is_future: bool, now_ms: int) -> None:
        if log is None:
            return
        other = self.open.get(log.topic_id, log.partition)
        if is_future and self.open.future(log.topic_id, log.partition) is None:
            self.open.add_future(directory, log)
        elif is_future:
            log.durability.leave()
            self.open.remove_files(
                log, directory, now_ms
            )  # the copy of an earlier move, whose directory was offline since
        elif other is not None:
            self.futures.keep_one(other, log, directory, now_ms)
        else:
            self.open.add(directory, log)

    def _open_partition(
        self, directory: LogDir, dir_name: str, name: tuple[str, int], config_for: ConfigFor, clean: bool, now_ms: int
    ) -> Log | None:
        """Open a partition. Return None if it was set aside."""

        def known(checkpoint_name: str) -> int:
            return self.checkpoints.known(directory.path, checkpoint_name, name)

        path = f"{directory.path}/{dir_name}"
        try:
            topic_id = read_topic_id(self.files, path)
        except CorruptFile as error:
            if known(checkpoint.RECOVERY_POINT):
                raise  # partition.metadata was on the disk once, so it is damaged
            logger.warning("%s: the partition is set aside", error)
            topic_id = None
        if topic_id is None:
            # Kafka does the same. partition.metadata is synced before the first flush of records, so no acknowledged record is lost.
            self._rename_away(directory, path, *name, DELETE if future_partition_of(dir_name) else STRAY)
            return None
        log = open_log(
            self.open.spec(path, *name, topic_id, config_for(name[0], topic_id), now_ms),
            clean=clean,
            recovery_point=known(checkpoint.RECOVERY_POINT),
            log_start_offset=known(checkpoint.LOG_START),
        )
        log.advance_high_watermark(known(checkpoint.REPLICATION))
        log.cleaning.cleaned(min(known(checkpoint.CLEANER), log.log_end_offset))
        return log

    def _leave_closed(self, path: str, name: tuple[str, int], error: Exception) -> None:
        """Record that a partition cannot be opened: its files are not changed, and the node runs without it."""
        self.damaged[name] = DamagedPartition(path, error)
        known = isinstance(error, DamagedLog | CorruptFile)
        remedy = error.remedy if isinstance(error, DamagedLog) else REMEDY
        logger.error("%s is offline: %s. Remedy: %s", path, error, remedy, exc_info=None if known else error)

    # Creating and deleting

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        now_ms: int = 0,
        directory_id: bytes | None = None,
    ) -> Log:
        """Return the existing log, or a new one in the given directory or in the one with the fewest logs.

        An unknown directory id belongs to a removed directory (KIP-858), unless one of this node's directories is offline.
        Nothing is written yet (`recovery.new_log`).

        Raises:
            LogDirectoryOffline: all directories are offline, or one is that may contain the log.
            DamagedPartition: the log exists and could not be opened.
            StorageFailure, DiskFull
        """
        if (damaged := self.damaged.get((topic, partition))) is not None:
            self._set_damaged_aside(damaged, topic, partition, topic_id)
        if (log := self.open.get(topic_id, partition)) is not None:
            return log
        if (same_name := self.open.by_name(topic, partition)) is not None:
            self.set_aside(same_name)  # the log of an earlier topic of this name
        self.open.removals.settle(self.open.paths_of(topic, partition))
        if (future := self.open.future(topic_id, partition)) is not None:
            if self.futures.is_assigned(future, directory_id):
                return self.futures.adopt(future)
            logger.warning(
                "%s is set aside: it was not yet assigned, and its partition has no other log", future.directory
            )
            self.set_aside(future)
        directory = self.futures.take_preferred(topic, partition) or self._choose(directory_id)
        log = new_log(
            self.open.spec(f"{directory.path}/{topic}-{partition}", topic, partition, topic_id, config, now_ms)
        )
        without_files = self._without_files.setdefault((topic_id, directory.path), log.room.without_files)
        log.room.create_with(without_files)
        self.open.add(directory, log)
        return log

    def _set_damaged_aside(self, damaged: DamagedPartition, topic: str, partition: int, topic_id: bytes) -> None:
        """Set aside the damaged files of an earlier topic of the same name; raise if they belong to this topic."""
        try:
            owner = read_topic_id(self.files, damaged.path)
        except CorruptFile:
            owner = None
        if owner is None or owner == topic_id:
            raise damaged
        directory = next(d for d in self.directories if damaged.path.startswith(f"{d.path}/"))
        self._rename_away(directory, damaged.path, topic, partition, STRAY)
        del self.damaged[(topic, partition)]

    def _choose(self, directory_id: bytes | None) -> LogDir:
        online = [d for d in self.directories if d.online]
        if named := [d for d in online if d.directory_id == directory_id]:
            return named[0]
        if not online:
            raise LogDirectoryOffline(self.directories[0].path, "no log directory is in use")
        failed = self.open.offline_directories
        if failed and directory_id is not None and int.from_bytes(directory_id, "big") >= RESERVED_IDS:
            # The log may be in the failed directory: an empty one elsewhere would count as this replica and lose its records.
            raise LogDirectoryOffline(failed[0].path, "the log may be in this directory, which cannot be used")
        return min([d for d in online if not d.cordoned] or online, key=lambda d: len(self.open.in_directory(d)))

    def delete(self, topic_id: bytes, partition: int, now_ms: int = 0) -> None:
        """Remove the log from memory, without a system call. `rename_deleted` and `remove_deleted` remove its files."""
        if (future := self.open.future(topic_id, partition)) is not None:
            self.futures.drop(future, now_ms)
        log = self.open.get(topic_id, partition)
        if log is None:
            return
        directory = self.open.take_out(log)
        if log.partition_dir.exists:
            self.open.remove_files(log, directory, now_ms)

    def deleted_to_rename(self, directory: LogDir) -> int:
        """Return the number of deleted logs of this log directory whose directories are not yet renamed."""
        return len(self.open.removals.in_directory(directory))

    def rename_deleted(self, directory: LogDir) -> None:
        """Rename the directories of deleted logs in a log directory, with one sync, on any thread.

        Raises:
            StorageFailure: some were not renamed; on a full disk (`DiskFull`) the next call tries again.
        """
        failure = self.open.removals.rename_in(directory)
        if failure is not None:
            raise failure

    def set_aside(self, log: Log) -> None:
        """Rename a stray replica or copy, which the metadata does not know, to a name that is not opened. Its files are kept."""
        directory = self.open.take_out(log)
        log.durability.unmap()
        if log.partition_dir.exists:
            self._rename_away(directory, log.directory, log.topic, log.partition, STRAY)

    def _rename_away(self, directory: LogDir, path: str, topic: str, partition: int, suffix: str) -> None:
        try:
            self.files.rename(path, self.open.name_away(directory, topic, partition, suffix))
            self.files.sync_dir(directory.path)
        except StorageFailure as failure:
            if not isinstance(failure, DiskFull):
                self.open.directory_failed(directory, failure)
            raise

    def remove_deleted(self, directory: LogDir, now_ms: int, limit: int = REMOVED_AT_ONCE) -> int:
        """Unlink files and directories whose file.delete.delay.ms has passed, at most `limit`; return their number.

        It runs on any thread, one call for a log directory at a time.
        """
        for log in self.open.in_directory(directory):
            for path in log.partition_dir.take_deleted():
                self.open.removals.add_file(log, path, now_ms + log.config.file_delete_delay_ms)
        return self.open.removals.remove_due(directory, now_ms, limit)

    # Scheduled tasks

    def flush_due(self, now_ms: int) -> list[Log]:
        """Return the logs to flush now (`Log.begin_flush`). It runs on the thread that appends.

        These are the logs whose configuration requires a flush, and those whose recovery after a crash would take too long. For the
        latter it writes a producer snapshot here, because no append runs meanwhile.
        """
        due: list[Log] = []
        for grown in list(self.open.grown):
            log, config = self.open.get(grown.topic_id, grown.partition), grown.config
            grown.segments.active.file.age()
            if log is not grown or (config.flush_ms == config.flush_messages == NEVER):
                # Only an append can make a roll due, and the next append asks for room. Most of 10,000 logs get none: a look at all took
                # 3.4 ms.
                del self.open.grown[grown]
                grown.segments.active.file.close_room()
            if log is not grown or log.failure is not None or log.recovery_point >= log.log_end_offset:
                continue
            if log.durability.unflushed_bytes >= RECOVERY_BYTES_MAX:
                try:
                    log.snapshot_producers()
                except StorageFailure as failure:
                    self.open.grown[log] = None
                    logger.warning("producers of %s: %s", log, failure)
                    continue
                except Exception:
                    self.open.grown[log] = None
                    logger.exception("producers of %s", log)
                    continue
                due.append(log)
            elif log.flush_due(now_ms):
                due.append(log)
        return due

    def _sync_entries(self) -> None:
        """Sync the entries of partition directories created since the last flush, with one sync per log directory."""
        for directory in self.directories:
            logs = self.open.in_directory(directory)
            if directory.online and any(log.partition_dir.exists and not log.durability.entry_synced for log in logs):
                try:
                    self.files.sync_dir(directory.path)
                except StorageFailure as failure:
                    self._unclean.add(directory.path)
                    self.open.directory_failed(directory, failure)
                    continue
                for log in logs:
                    log.durability.entry_is_synced()

    # Closing

    def close_all(self, broker_epoch: int = -1) -> None:
        """Stop cleanly: sync everything and write the mark of a clean stop. A directory where that failed gets none.

        A node whose event loop keeps running does the same in steps: `begin_close`, `close_some` on several threads,
        `end_close`. No log may be appended to or read meanwhile.
        """
        self.close_some(self.begin_close())
        self.end_close(broker_epoch)

    def begin_close(self) -> list[Log]:
        """Return all logs; each must be passed to `close_some`."""
        # Threads that close logs must not unmap each other's segments.
        self.open.mappings.lift_limit()
        return [*self.open, *self.open.futures()]

    def close_some(self, logs: Iterable[Log]) -> None:
        """Flush and close these logs, on any thread, each log once."""
        for log in logs:
            if not log.close(entry=False):
                self._unclean.add(self.open.directory_of(log).path)

    def end_close(self, broker_epoch: int = -1) -> None:
        """Sync the log directories and write the checkpoints and marks, after every log is closed, on any thread."""
        for directory in self.directories:
            try:
                self.rename_deleted(directory)
            except StorageFailure as failure:
                logger.warning("deleted partitions keep their names until the next start: %s", failure)
        self._sync_entries()
        unclean = self._unclean
        unclean |= {self.open.directory_of(log).path for log in (*self.open, *self.open.futures()) if not log.closed}
        self.checkpoints.write_last()
        for directory in self.directories:
            if directory.online and self.checkpoints.is_complete(directory) and directory.path not in unclean:
                try:
                    log_dirs.write_clean_mark(self.files, directory.path, broker_epoch)
                except StorageFailure as failure:
                    logger.warning("%s: the next start will recover every log: %s", directory.path, failure)
            if directory.lock is not None:
                directory.lock.release()
        self.open.clear()
