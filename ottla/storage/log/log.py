"""The log of one replica: its offsets, appends and reads, and the parts of which it consists.

    log start offset <= high watermark <= log end offset            and the recovery point: all below it is flushed
    log start offset <= local start offset <= log end offset        what lies between the first two is only in remote storage (KIP-405)

`append` is the hot path (about 3 us for a small batch): one header check, one copy into the mapped segment, no work per
record. A log has a single writer, which runs on one thread; only `flush` may run beside it on another.
The log does not know roles: the caller advances the high watermark.

    segments, epochs, producers, snapshots     the appended batches, and the state that follows from them
    partition_dir                              the files: whether they are there, usable, or wait for their removal
    room, durability                           what an append needs from the disk, and what the disk has of the log

What works on several of these is a function in a module above this one: `truncate`, `retention`, `lookup`, `replay`, and
`trusted_append` for batches that a client has not sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchView,
)
from ottla.protocol.records.builder import Prepared, prepared_batch
from ottla.protocol.records.validate import restamp, validate_header
from ottla.protocol.work import TooLong, Turn
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.durability import Cleaning, Durability, FlushJob
from ottla.storage.log.partition_dir import LogSpec, PartitionDir
from ottla.storage.log.room import Room
from ottla.storage.log_config import NEVER, LogConfig
from ottla.storage.producers.producer_snapshots import ProducerSnapshots
from ottla.storage.producers.producer_states import Origin, ProducerStates
from ottla.storage.segment.segments import NO_BYTES, Read, Segments

logger = logging.getLogger(__name__)

__all__ = ["CLIENT", "Appended", "Log", "Origin", "Read"]

CLIENT = Origin.CLIENT  # a global name: the lookup of an enum's member takes longer


class Appended(NamedTuple):
    """The result of an append. A duplicate gets the result of the first append."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 with CreateTime
    log_start_offset: int
    duplicate: bool = False


class Log:
    """The log of one replica. `storage.directories.recovery.open_log` and `storage.directories.logs.Logs` create it."""

    def __init__(
        self,
        spec: LogSpec,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        local_start_offset: int = 0,
    ) -> None:
        assert 0 <= log_start_offset <= log_end_offset
        self.files, self.mappings = spec.files, spec.mappings
        self.topic, self.partition, self.topic_id = spec.topic, spec.partition, spec.topic_id
        self.segments, self.epochs, self.producers = segments, epochs, ProducerStates()
        self.log_start_offset = log_start_offset
        self.local_start_offset = max(log_start_offset, local_start_offset)
        self.log_end_offset = log_end_offset
        self.high_watermark = self.local_start_offset
        #: The last offset that is known to be in remote storage, -1 if nothing is. Retention waits for it.
        self.remote_end = -1
        #: The next offset of the topic's table; None if it has none, or if this replica does not lead.
        self.table_offset: int | None = None
        place = self.partition_dir = PartitionDir(spec)
        self.snapshots = ProducerSnapshots(spec.files, spec.directory, place.lock, self.producers)
        self.durability = Durability(recovery_point, place, segments, epochs, self.snapshots)
        self.room = Room(spec, self.durability)
        self.cleaning = Cleaning()
        for segment in segments:
            segment.file.cold.know_epochs(epochs.epoch_of)
        self._set_rules(spec.config)

    @property
    def recovery_point(self) -> int:
        """All below this offset is flushed."""
        return self.durability.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: no transaction below it is open, or ended by a marker that is not yet replicated."""
        producers = self.producers
        if not producers.undecided and not producers.unreplicated:
            return self.high_watermark
        # DeleteRecords and retention may remove the first record of an open transaction.
        return min(max(producers.first_unstable_offset(), self.log_start_offset), self.high_watermark)

    # Moving the offsets. `append` moves the log end offset by itself, because it is the hot path.

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, at most to the log end offset. Return False if it did not change."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)
        return True

    def commit_all(self) -> None:
        """Raise the high watermark to the log end offset."""
        self.high_watermark = self.log_end_offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(self.high_watermark)

    def appended_to(self, offset: int) -> None:
        """Raise the log end offset: trusted batches were appended."""
        self.log_end_offset = offset

    def start_at(self, offset: int) -> None:
        """Raise the log start offset."""
        self.log_start_offset = offset
        if self.local_start_offset < offset:
            self.local_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def local_start_at(self, offset: int) -> None:
        """Raise the local start offset: records before it are only in remote storage. The log still has their epochs."""
        assert offset <= self.log_end_offset
        self.local_start_offset = max(self.local_start_offset, offset)

    def end_at(self, offset: int) -> None:
        """Lower the log end offset: batches were truncated."""
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.local_start_offset = min(self.local_start_offset, offset)
        self.remote_end = min(self.remote_end, offset - 1)

    def restart_at(self, offset: int, start: int) -> None:
        """The log is empty: the next append is at `offset`. With remote storage the log may start before that."""
        self.log_end_offset = offset
        self.remote_end = -1
        self.log_start_offset = start
        self.local_start_offset = self.high_watermark = max(offset, start)

    def take_over(self, replaced: Log) -> None:
        """Take the place of another log, whose batches this one has, with the state of it that does not follow from batches.

        An epoch may have begun without a batch, compaction may have removed all batches of one, and transactions may be verified.
        """
        if self.log_end_offset < replaced.log_end_offset:
            # The replaced log ends with a gap, which a truncation or compaction left.
            self.durability.set_gap((self.log_end_offset, replaced.log_end_offset))
            self.log_end_offset = replaced.log_end_offset
        self.remote_end = replaced.remote_end
        self.epochs.replace(replaced.epochs.entries, replaced.epochs.assigned)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers = replaced.producers
        self.snapshots.follow(self.producers)
        # After a kill the other log may know less than this one: its start and high watermark are as old as their checkpoints.
        # Records below a log start were committed.
        self.high_watermark = max(replaced.high_watermark, self.log_start_offset)
        self.cleaning.take_over(replaced.cleaning)
        self.durability.take_over(replaced.durability)
        if self.config is not replaced.config:
            self.update_config(replaced.config)
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset <= NEVER

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset}))"

    def update_config(self, config: LogConfig) -> None:
        if not config.remote_storage_enable and self.log_start_offset < self.local_start_offset:
            # Remote storage was switched off, or the log was opened as if it were on.
            self.start_at(self.local_start_offset)
        self._set_rules(config)
        self.room.update_config(config)

    def _set_rules(self, config: LogConfig) -> None:
        self.config = config
        rules = self.rules = config.record_rules()
        self.may_ask = rules.may_ask

    @property
    def directory(self) -> str:
        return self.partition_dir.path

    @property
    def failure(self) -> StorageFailure | None:
        """Return why the log is offline."""
        return self.partition_dir.failure

    @property
    def closed(self) -> bool:
        return self.partition_dir.closed

    def fail(self, failure: StorageFailure) -> None:
        self.room.fail(failure)

    # Appending

    def append(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, prepared: Prepared | Turn | None = None
    ) -> Appended:
        """Append a client's batch atomically and without waiting; `Origin` lists the checks and the assigned fields.

        `prepared` is the result of `lookup.prepare_append`, or the turn in which `append` may prepare the batch itself.

        Raises:
            KafkaError: the batch is invalid; nothing has changed.
            TooLong: the batch must be prepared first, or there is a `disk_job`; nothing has changed.
            StorageFailure: the disk failed (`DiskFull`: a later append may succeed); nothing has changed.
            UnexpectedAppendOffset: the replicated batches do not continue this log.
        """
        rules = self.rules
        size = len(records)
        header = validate_header(records, size, rules, now_ms, prepared)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
        if size != length + LOG_OVERHEAD_BYTES:
            size = length + LOG_OVERHEAD_BYTES
            records = records[:size]
        if (attributes or self.may_ask) and rules.asks(attributes & CODEC_MASK):
            records = prepared_batch(memoryview(records), rules, now_ms, prepared)
            size = len(records)
        if producer_id >= 0:
            try:
                duplicate = self.producers.check(
                    producer_id, epoch, sequence, count, attributes & TRANSACTIONAL_BIT != 0, CLIENT, self.log_end_offset,
                )  # fmt: skip
            except KafkaError as error:
                raise self.room.explain_order(error) from None
            if duplicate is not None:
                acknowledged = duplicate.first_offset, duplicate.last_offset, duplicate.timestamp
                return Appended(*acknowledged, self.log_start_offset, duplicate=True)
        first = self.log_end_offset
        last = first + delta
        if rules.log_append_time:
            max_timestamp = now_ms
        segment = self.segments.active
        room = self.room
        if not room.has_room(segment.file, size, last, max_timestamp, now_ms):
            room.check_size(size)
            if type(prepared) is Turn and room.disk_job(size, last, max_timestamp, now_ms) is not None:
                raise TooLong
            segment = room.make_room(size, first, last, max_timestamp, now_ms, first)
        if leader_epoch != self.epochs.assigned and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first)
        try:
            position = segment.append(records, size, first, last, leader_epoch, max_timestamp)
        except StorageFailure as failure:
            self.fail(failure)
            raise
        append_time = NO_TIMESTAMP
        if rules.log_append_time or (attributes and attributes & LOG_APPEND_TIME_BIT):
            append_time = restamp(segment.file.view(), position, header, rules, now_ms)
        self.log_end_offset = last + 1
        if producer_id >= 0:
            transactional = attributes & TRANSACTIONAL_BIT != 0
            self.producers.update(producer_id, epoch, sequence, first, last, max_timestamp, transactional)
        if not position:
            room.on_new_active()
        # `Appended(...)` would be a call of Python code, which takes 0.15 us more.
        return tuple.__new__(Appended, (first, last, append_time, self.log_start_offset, False))

    # Reading

    def read(self, offset: int, *, max_bytes: int, up_to_offset: int = NEVER, min_one: bool = True) -> Read:
        """Return complete batches from the one that contains `offset` on, all of them below `up_to_offset`.

        Of bytes that are not in memory it returns few, and none without `min_one`: the event loop must not wait for the disk long.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; OFFSET_MOVED_TO_TIERED_STORAGE; CORRUPT_MESSAGE if the first of them is damaged.
            StorageFailure: the disk cannot read them; the log directory goes offline.
        """
        end_offset = self.log_end_offset
        segment = self.segments.active
        start = segment.hints.get(offset)
        if start is not None and up_to_offset >= end_offset and offset >= self.local_start_offset:
            file = segment.file
            end = file.size
            if file.fresh_from <= start < end <= start + max_bytes:
                # The usual read begins where another ended, and takes all that has come since.
                segment.remember(end_offset, end)
                return tuple.__new__(Read, (file.view()[start:end].toreadonly(), end_offset))
        if not self.local_start_offset <= offset <= end_offset:
            if self.log_start_offset <= offset < self.local_start_offset:
                raise KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {end_offset}] of {self.topic}-{self.partition}",
            )
        if up_to_offset > end_offset:
            up_to_offset = end_offset
        if offset >= up_to_offset:
            return Read(NO_BYTES, offset)
        try:
            return self.segments.read(offset, max_bytes, up_to_offset, end_offset, min_one)
        except StorageFailure as failure:
            self.fail(failure)
            raise

    def batches(self, start: int, end: int = NEVER) -> Iterator[BatchView]:
        """Yield every batch that overlaps [start, end), for replay. Appends may run meanwhile."""
        position_from = max(start, self.local_start_offset)
        for segment in self.segments.from_offset(position_from):
            if segment.base_offset >= min(end, self.log_end_offset):
                return
            for position, following, base, last in segment.from_offset(position_from):
                if base >= end:
                    return
                if last >= position_from:
                    yield BatchView(segment.file.view()[position:following])

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch at or below `epoch`, (-1, -1) if there is none (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def roll(self, now_ms: int = 0) -> int:
        """Seal the active segment and start a new one; return the new base offset."""
        try:
            return self.room.roll(self.log_end_offset, now_ms).base_offset
        except StorageFailure as failure:
            self.fail(failure)
            raise

    # The disk

    def snapshot_producers(self) -> None:
        """Write a snapshot of the producer states, so that recovery after a crash need not read all batches of the segment."""
        if len(self.producers):
            try:
                self.snapshots.take(self.log_end_offset, self.segments.bases, self.recovery_point)
            except StorageFailure as failure:
                self.fail(failure)
                raise

    def flush_due(self, now_ms: int) -> bool:
        """Return True if flush.messages or flush.ms require a flush now."""
        unflushed, since_ms = self.log_end_offset - self.recovery_point, now_ms - self.durability.flushed_ms
        return unflushed > 0 and (unflushed >= self.config.flush_messages or since_ms >= self.config.flush_ms)

    def flush(self, now_ms: int = 0) -> None:
        """Sync all batches appended so far and advance the recovery point to their end, on the log's own thread.

        Raises:
            StorageFailure: the log directory goes offline.
        """
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.end_flush(job, now_ms)

    def begin_flush(self) -> FlushJob | None:
        """Begin a flush in three parts: `run` of the job makes the system calls on a worker, and `end_flush` counts them."""
        return self.durability.begin_flush(self.log_end_offset)

    def end_flush(self, job: FlushJob, now_ms: int) -> bool:
        """Return False if the log was truncated or closed since the job began: another flush is needed. Raises as `flush`."""
        try:
            assert job.end <= self.log_end_offset or not job.is_current(), "only a truncation lowers the end"
            return self.durability.end_flush(job, now_ms)
        except StorageFailure as failure:
            self.fail(failure)
            raise

    def close(self, clean: bool = True, *, entry: bool = True) -> bool:
        """Trim the active segment, write a producer snapshot, flush and close the files. Return False if the disk failed.

        Without `entry` the caller must sync the parent directory, which has the entry of a new log.
        """
        if self.closed:
            return False
        saved = not self.partition_dir.exists
        if self.failure is None and clean and self.partition_dir.exists:
            try:
                self.durability.save(self.log_end_offset, entry=entry)
                saved = True
            except StorageFailure as failure:
                self.fail(failure)
                logger.warning("%s is not closed cleanly: %s", self, failure)
        self.durability.close(clean)
        return saved
