"""Future logs: copies in another log directory that replace a partition's log once they have all of it (KIP-113).

    create     an empty log `<topic>-<partition>.<32 hex>-future`; its files are created with its first batch
    replace    the future log takes the partition's name, in one turn of the thread that appends
    drop       the move is cancelled: the copy is deleted

The broker decides (replication/log_moves.py). The future log follows the log that it is to replace, as a follower does its
leader's, within one thread (`copy_some`): batches are appended as they are, so that leader epochs, producer states and indexes
come from the same code as a follower's. The two logs agree where their epochs do (KIP-101): `align` truncates the future log
after the current one was truncated, and after a restart. The functions run on the thread that appends, and change the future
log only.

What a crash can leave between the steps of a replacement, and
what the next start does (`settle_names`, `adopt`):

    the new name is not on the disk        both logs have their old names: the move goes on
    both logs have the partition's name    the one with the later epoch and end is kept, the other one is deleted
    only the new one has it                the replacement is complete

The old log is renamed after the new name was synced (`Removals`), so one of them always has the partition's name. If the log
is gone nevertheless, with its disk, the metadata decides about the copy (`is_assigned`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from ottla.protocol.records.batch import MAX_TIMESTAMP_AT, PRODUCER_ID_AT
from ottla.protocol.work import DiskJob
from ottla.storage.directories.log_dirs import RESERVED_IDS, LogDir
from ottla.storage.directories.open_logs import OpenLogs
from ottla.storage.directories.recovery import new_log
from ottla.storage.epochs import NO_EPOCH
from ottla.storage.errors import DamagedPartition, DiskFull, StorageFailure
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.partition_dir import FUTURE
from ottla.storage.log.retention import advance_log_start_offset, apply_retention
from ottla.storage.log.truncate import Restored, restore_and_start_at, truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.producers.producer_states import ProducerStates

logger = logging.getLogger(__name__)

#: A client may name directories for partitions that are not here yet: the oldest of more than these are forgotten.
PREFERRED_MAX = 10_000


class FutureLogs:
    """The future logs of a node, and the directories that operators chose for partitions that are not here yet."""

    def __init__(self, logs: OpenLogs) -> None:
        self._logs = logs
        self._preferred: dict[tuple[str, int], LogDir] = {}  # directories for partitions that are not here yet

    def prefer(self, topic: str, partition: int, directory: LogDir) -> None:
        """Remember the directory for this partition's log until it is created, as Kafka does."""
        self._preferred.pop((topic, partition), None)
        self._preferred[(topic, partition)] = directory
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def take_preferred(self, topic: str, partition: int) -> LogDir | None:
        """Return the directory that is remembered for this partition, once, if it is online."""
        directory = self._preferred.pop((topic, partition), None)
        return directory if directory is not None and directory.online else None

    def create(self, current: Log, directory: LogDir, now_ms: int) -> Log:
        """Return a new, empty log in `directory` that is to replace `current`.

        Raises:
            StorageFailure
        """
        assert self._logs.future(
            current.topic_id, current.partition
        ) is None and directory is not self._logs.directory_of(current)
        # A log that `current` has replaced there needs its offsets until it has lost its name: a power loss could bring it back.
        self._logs.removals.settle([self._logs.path_of(directory, current)])
        name = self._logs.name_away(directory, current.topic, current.partition, FUTURE)
        future = new_log(
            self._logs.spec(name, current.topic, current.partition, current.topic_id, current.config, now_ms)
        )
        self._logs.add_future(directory, future)
        current.cleaning.move(True)
        return future

    def drop(self, future: Log, now_ms: int) -> None:
        """Remove a future log from memory. `rename_deleted` and `remove_deleted` remove its files."""
        directory = self._logs.take_out(future)
        if future.partition_dir.exists:
            self._logs.remove_files(future, directory, now_ms)

    def names_free(self, future: Log) -> bool:
        """Return False if the directory that the future log is to become still has a deleted log's files."""
        return not self._logs.removals.pending([self._logs.path_of(self._logs.directory_of(future), future)])

    def replace(self, current: Log, future: Log, now_ms: int) -> None:
        """Make the future log the partition's log. The caller has found it complete in this turn (`is_flushed`).

        Raises:
            StorageFailure: the directory of the future log cannot be renamed; nothing has changed.
        """
        target = self._logs.directory_of(future)
        try:
            future.durability.relocate(self._logs.path_of(target, future))
        except StorageFailure as failure:
            if not isinstance(failure, DiskFull):
                self._logs.directory_failed(target, failure)
            raise
        self._logs.names_unsynced(target)
        future.take_over(current)
        source = self._logs.replace_by_future(future)
        assert source is not None, "the current log was there"
        if current.partition_dir.exists:
            self._logs.remove_files(current, source, now_ms, target if future.partition_dir.exists else None)

    def is_assigned(self, future: Log, directory_id: bytes | None) -> bool:
        """Return True if a future log without the log that it copies is to become the partition's log, as in Kafka: in the metadata's directory.

        The controller is asked for that directory once the copy has caught up. An earlier copy lacks records, has deleted ones,
        or is of a replica that was removed meanwhile.

        Raises:
            DamagedPartition: a directory is offline that may have the partition's log.
        """
        if self._logs.offline_directories:
            reason = (
                f"the log that it copies is in a directory that is offline: {self._logs.offline_directories[0].path}"
            )
            raise DamagedPartition(future.directory, reason)
        return self._logs.directory_of(future).directory_id == directory_id

    def adopt(self, future: Log) -> Log:
        """Make a future log the partition's log, because the log itself is lost with its directory, and so are its later records."""
        directory = self._logs.directory_of(future)
        logger.warning("%s: its partition has no other log here, so it becomes the partition's log", future.directory)
        future.durability.relocate(self._logs.path_of(directory, future))
        self._logs.replace_by_future(future)
        return future

    def may_be_elsewhere(self, directory_id: bytes) -> bool:
        """Return True if the metadata's directory of a log may be one that is offline: a log elsewhere may be an older copy."""
        online = {directory.directory_id for directory in self._logs.directories if directory.online}
        known = directory_id in online or int.from_bytes(directory_id, "big") < RESERVED_IDS
        return not known and bool(self._logs.offline_directories)

    # The start

    def settle_names(self, now_ms: int) -> None:
        """Link the future logs that were found with the logs that they copy. It runs once, after the directories were opened."""
        for future in self._logs.futures():
            current = self._logs.get(future.topic_id, future.partition)
            if current is None:
                continue
            if (directory := self._logs.directory_of(current)) is self._logs.directory_of(future):
                self.drop(future, now_ms)
                self._logs.add_to(directory, current)  # the future log was registered in place of it
                continue
            current.cleaning.move(True)
            if current.config.compact:
                # The log may have been compacted while the directory of its copy was offline.
                with suppress(StorageFailure):  # the directory is offline now
                    truncate_fully_and_start_at(future, 0)

    def keep_one(self, other: Log, log: Log, directory: LogDir, now_ms: int) -> None:
        """Keep one of two logs that have the partition's name: a crash came between the two renames of a replacement.

        The future log had all of the other one's batches when it took the name, and only it was appended to since. It is the
        shorter one only if a power loss took the name back; the records of the other one are then complete.
        """
        first, second = self._logs.directory_of(other), directory
        if _extent(log) >= _extent(other):
            self._logs.take_out(other)
            self._logs.add(directory, log)
            loser, place, winner = other, first, second
        else:
            log.durability.leave()
            loser, place, winner = log, second, first
        logger.warning("%s was being replaced: %s is kept", loser.directory, winner.path)
        self._logs.files.sync_dir(winner.path)
        self._logs.remove_files(loser, place, now_ms)


def _extent(log: Log) -> tuple[int, int, int]:
    """Order two logs of a partition by their contents: epochs decide, because records of an older epoch may be divergent."""
    return log.epochs.epoch_of(log.log_end_offset - 1), log.log_end_offset, log.log_start_offset


#: The value of flush.messages with which a record is acknowledged only once it is on the disk.
EVERY_RECORD = 1

Epochs = Sequence[tuple[int, int]]


def agreement(first: Epochs, second: Epochs, start: int, end: int) -> int:
    """Return the offset up to which two logs agree in [start, end): up to there each offset has the same epoch in both. Pure."""
    bounds = sorted({start, end, *(at for _, at in (*first, *second) if start < at < end)})
    for at, following in pairwise(bounds):
        if _epoch_at(first, at) != _epoch_at(second, at):
            return at
        assert following > at
    return end


def _epoch_at(epochs: Epochs, offset: int) -> int:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), NO_EPOCH)


def align(current: Log, future: Log) -> None:
    """Make the future log a part of the current one: it is truncated where they do not agree."""
    start = max(current.local_start_offset, future.local_start_offset)
    end = min(current.log_end_offset, future.log_end_offset)
    agreed = agreement(current.epochs.entries, future.epochs.entries, start, end) if start < end else -1
    if agreed > start:
        if agreed < future.log_end_offset:
            truncate_to(future, agreed)
    elif (future.log_start_offset, future.log_end_offset) != (current.log_start_offset, current.local_start_offset):
        _start_over(current, future)


def follow_start(current: Log, future: Log, now_ms: int) -> None:
    """Take over the log start offset, and remove the segments that retention does not keep."""
    start = current.log_start_offset
    if current.local_start_offset > future.log_end_offset:
        _start_over(current, future)
    elif start > future.log_start_offset:
        future.advance_high_watermark(current.high_watermark)
        advance_log_start_offset(future, start)
        apply_retention(future, now_ms)


def _start_over(current: Log, future: Log) -> None:
    """Empty the future log. It takes over the current log's state of records that are only in remote storage."""
    start = current.local_start_offset
    is_remote, producers = current.log_start_offset < start, ProducerStates()
    if (
        is_remote
        and start in current.snapshots.offsets
        and current.snapshots.load(producers, start - 1, start) == start
    ):
        epochs = [each for each in current.epochs.entries if each[1] < start]
        restore_and_start_at(future, Restored(start, epochs, list(producers)), current.log_start_offset)
    else:
        truncate_fully_and_start_at(future, start, current.log_start_offset)


def copy_some(current: Log, future: Log, bytes_max: int, now_ms: int, *, disk_job_done: bool = False) -> int | DiskJob:
    """Copy some batches; return their size, 0 if the future log has all of them, or a disk job (`Room.disk_job`) that it needs first.

    Raises:
        KafkaError: CORRUPT_MESSAGE: the current log is damaged there.
        StorageFailure
    """
    records = current.read(future.log_end_offset, max_bytes=bytes_max).records
    size = len(records)
    if not size:
        return 0
    # The first batch decides whether the append begins with a roll by time.
    max_timestamp = int.from_bytes(records[MAX_TIMESTAMP_AT:PRODUCER_ID_AT], "big", signed=True)
    job = future.room.disk_job(size, future.log_end_offset, max_timestamp, now_ms)
    if job is not None and not disk_job_done:
        return job
    append_trusted(future, records, leader_epoch=current.epochs.latest, now_ms=now_ms, origin=Origin.REPLICATION)
    future.advance_high_watermark(current.high_watermark)
    return size


class ReadAhead(NamedTuple):
    """A read for a worker thread, after which the copying waits for no disk up to this offset."""

    read: Callable[[], object]
    to_offset: int


def read_ahead(log: Log, offset: int, size: int) -> ReadAhead | None:
    """Return a read of `size` bytes from the disk if an earlier process wrote the batch at this offset, else None.

    The event loop would otherwise wait for the disk at each page. The bytes stay in the page cache.
    """
    index = log.segments.floor_index(offset)
    segment = log.segments[index]
    start = segment.position_of(offset)
    if start is None or start >= segment.file.in_memory_from:
        return None
    end = segment.end_of_slice(start, segment.file.size, size, True, start)
    following = log.segments.next_base(index)
    segment_end = log.log_end_offset if following is None else following
    to_offset = segment_end if end == segment.file.size else segment.file.offset_at(end)
    return ReadAhead(partial(_read, log, segment.file.log_path, start, end - start), to_offset)


def _read(log: Log, path: str, position: int, size: int) -> None:
    with suppress(FileNotFoundError):  # retention may have removed the segment meanwhile
        log.files.pread(path, position, size)


def is_flushed(current: Log, future: Log) -> bool:
    """Return True if all that is on the disk in the current log is there in the future log: a power loss must not take it back.

    With flush.messages=1 all of both: a follower whose flush is interrupted by the replacement counts its log as flushed.
    """
    if current.config.flush_messages == EVERY_RECORD:
        return current.recovery_point == current.log_end_offset and future.recovery_point == future.log_end_offset
    return future.recovery_point >= min(current.recovery_point, future.log_end_offset)
