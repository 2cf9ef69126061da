"""The log of one replica: the facade over segments, indexes, epochs and producer states.

    log start offset <= high watermark <= log end offset            and the recovery point: all below it is flushed

`append` is the hot path (about 3 us for a small batch): one header check, one copy into the mapped segment, no work per
record. A log has a single writer, which runs on one thread; only `flush` may run beside it on another.
The log does not know roles: `origin` says whose batches are appended, and the caller advances the high watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES,
    CODEC_MASK,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchView,
)
from ottla.protocol.records.validate import restamp, validate_header
from ottla.protocol.work import Errand, TooLong, Turn, Work, do_at_once, do_now
from ottla.storage.config import NEVER
from ottla.storage.errors import StorageFailure
from ottla.storage.log import flush, lookup, retention, roll, truncate, trusted_append
from ottla.storage.log.flush import FlushJob
from ottla.storage.log.log_state import NO_BYTES, Appended, LogState, Read, Retiring
from ottla.storage.log.preparation import Prepared, prepare
from ottla.storage.producers.producer_snapshots import Decoded
from ottla.storage.producers.producer_state import BatchMetadata, Origin
from ottla.storage.segment.segment_file import COLD_READ_BYTES
from ottla.storage.segment.txn_index import AbortedTxn

logger = logging.getLogger(__name__)

__all__ = ["Appended", "Log", "Origin", "Read"]

CLIENT = Origin.CLIENT  # a global name: the lookup of an enum's member takes longer


class Log(LogState):
    """The log of one replica. `storage.directories.recovery.open_log` and `storage.directories.logs.Logs` create it."""

    # Appending

    def append(
        self,
        records: bytes | bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        prepared: Prepared | Turn | None = None,
    ) -> Appended:
        """Appends batches atomically and without waiting; `Origin` lists the checks and the assigned fields.

        `prepared` is the result of `prepare` for a client's batch, or the turn in which `append` may prepare it itself.

        Raises:
            KafkaError: the batch is invalid; nothing has changed.
            TooLong: the batch must be prepared first, or there is an `errand`; nothing has changed.
            StorageFailure: the disk failed (`DiskFull`: a later append may succeed); nothing has changed.
            UnexpectedAppendOffset: the replicated batches do not continue this log.
        """
        view = records if type(records) is memoryview else memoryview(records)
        if origin is not CLIENT:
            return trusted_append.append_trusted(self, view, leader_epoch, now_ms, origin, transaction_version)
        rules = self.rules
        header = validate_header(view, 0, len(view), rules, now_ms, prepared)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
        size = length + LOG_OVERHEAD_BYTES
        if size != len(view):
            view = view[:size]
        if self.needs_records or (self.target_codec is not None and attributes & CODEC_MASK != self.target_codec):
            view = self._prepared(view, now_ms, prepared)
            size = len(view)
        if producer_id >= 0:
            try:
                duplicate = self.producers.check(
                    producer_id, epoch, sequence, count, attributes & TRANSACTIONAL_BIT != 0, origin
                )
            except KafkaError as error:
                raise self._explain_order_error(error) from None
            if duplicate is not None:
                return self._duplicate(duplicate)
        first = self.log_end_offset
        last = first + delta
        if rules.log_append_time:
            max_timestamp = now_ms
        segment = self.segments.active
        if not self.has_room(size, last, max_timestamp, now_ms):
            roll.check_size(self, size)
            if type(prepared) is Turn and self.errand(size, last, max_timestamp, now_ms) is not None:
                raise TooLong
            segment = roll.make_room(self, size, first, last, max_timestamp, now_ms)
        if leader_epoch != self.epochs.assigned and leader_epoch >= 0:
            self.epochs.assign(leader_epoch, first)
        try:
            position = segment.append(view, first, last, leader_epoch, max_timestamp)
        except StorageFailure as failure:
            self.fail(failure)
            raise
        append_time = NO_TIMESTAMP
        if rules.log_append_time or attributes & LOG_APPEND_TIME_BIT:
            append_time = restamp(segment.file.view(), position, header, rules, now_ms)
        self.log_end_offset = last + 1
        if producer_id >= 0:
            self.producers.update(
                producer_id, epoch, sequence, first, last, max_timestamp, attributes & TRANSACTIONAL_BIT != 0
            )
        if not position:
            self.on_new_active()
        # `Appended(...)` would be a call of Python code, which takes 0.15 us more.
        return tuple.__new__(Appended, (first, last, append_time, self.log_start_offset, False, False))

    def prepare(self, records: memoryview, now_ms: int, turn: Turn) -> Work[Prepared | None]:
        """Prepares a client's batch for `append`; None if that is not necessary. `records` must not change until it is done."""
        preparation = self.preparation
        try:
            header = validate_header(records, 0, len(records), preparation.rules, now_ms, turn)
        except KafkaError:
            return None  # `append` raises the same error
        errand = self.errand(
            len(records), self.log_end_offset + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP], now_ms
        )
        if errand is not None:
            yield errand
        if not preparation.asks(header[ATTRIBUTES] & CODEC_MASK):
            return None if errand is None else Prepared(preparation, None)
        try:
            return Prepared(preparation, (yield from prepare(BatchView(records), preparation, now_ms, turn)))
        except KafkaError as error:
            error.__traceback__ = error.__context__ = None  # their frames keep the decompressed records
            return Prepared(preparation, error)

    @property
    def prepares(self) -> bool:
        """Returns True if the configuration requires that some batches are prepared."""
        return self.needs_records or self.target_codec is not None

    def _prepared(self, view: memoryview, now_ms: int, prepared: Prepared | Turn | None) -> memoryview:
        preparation = self.preparation
        if prepared is None:
            return do_now(prepare(BatchView(view), preparation, now_ms, Turn()))
        if isinstance(prepared, Turn):
            return do_at_once(prepare(BatchView(view), preparation, now_ms, prepared))
        if prepared.preparation is not preparation:
            raise TooLong  # the configuration has changed since the batch was prepared
        if isinstance(prepared.outcome, KafkaError):
            raise prepared.outcome
        assert prepared.outcome is not None, "the codec asks for it, as it did then"
        return prepared.outcome

    def _explain_order_error(self, error: KafkaError) -> KafkaError | StorageFailure:
        """Returns the failure of the earlier append if it explains an out-of-order sequence, else `error`.

        After a failed append the producer's next batch is out of order. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka bump
        its epoch, and in-flight batches of other partitions could then be duplicated.
        """
        failure = self.append_failure
        if failure is None or error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return error
        return type(failure)(failure.path, failure.cause)

    def _duplicate(self, first: BatchMetadata) -> Appended:
        return Appended(first.first_offset, first.last_offset, first.timestamp, self.log_start_offset, duplicate=True)

    def errand(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Errand | None:
        """Returns the file system calls that such an append needs first, for a worker thread: the event loop must not wait for them.

        They do not raise: if it fails, the append tries again and raises the error.
        """
        return roll.errand(self, size, last_offset, max_timestamp, now_ms)

    # Reading

    def read(self, offset: int, *, max_bytes: int, up_to_offset: int = NEVER, min_one: bool = True) -> Read:
        """Returns complete batches from the one that contains `offset` on, all of them below `up_to_offset`.

        Of bytes that are not in memory it returns few, and none without `min_one`: the event loop must not wait for the disk long.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the first of them is damaged.
            StorageFailure: the disk cannot read them; the log directory goes offline.
        """
        try:
            return self._read(offset, max_bytes, up_to_offset, min_one)
        except StorageFailure as failure:
            self.fail(failure)
            raise

    def _read(self, offset: int, max_bytes: int, up_to_offset: int, min_one: bool) -> Read:
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in [{self.log_start_offset}, {end_offset}] of {self.topic}-{self.partition}",
            )
        if up_to_offset > end_offset:
            up_to_offset = end_offset
        if offset >= up_to_offset:
            return Read(NO_BYTES, offset, offset)
        segments = self.segments
        segment = segments.active
        index = len(segments) - 1
        if offset < segment.base_offset:
            index = segments.floor_index(offset)
            segment = segments[index]
        start = segment.position_of(offset)
        while start is None or start == segment.file.size:
            index += 1  # at the end of a segment, or in a gap of compaction
            if index == len(segments):
                return Read(NO_BYTES, offset, offset)
            segment = segments[index]
            start = segment.position_of(offset)
        file = segment.file
        following = segments.next_base(index)
        segment_end = end_offset if following is None else following
        if up_to_offset >= segment_end:
            limit, limit_offset = file.size, segment_end
        else:
            boundary = segment.position_of(up_to_offset)
            limit, limit_offset = (file.size if boundary is None else boundary), up_to_offset
        if start >= limit:
            return Read(NO_BYTES, offset, offset)
        in_memory = file.size
        if start < file.fresh_from:
            size = min(max_bytes, limit - start)
            in_memory = file.in_memory_until(start, size)
            max_bytes = max(in_memory - start, min(size, COLD_READ_BYTES) if min_one else 0)
            if not (max_bytes or min_one):
                return Read(NO_BYTES, offset, offset)
        end = file.checked_end(start, segment.end_of_slice(start, limit, max_bytes, min_one), in_memory)
        if end == start:
            return Read(NO_BYTES, offset, offset)
        view = file.view()[start:end].toreadonly()
        next_offset = limit_offset if end == limit else file.offset_behind(start, end)
        segment.remember(next_offset, end)
        return Read(view, int.from_bytes(view[:8], "big"), next_offset)

    def batches(self, start: int, end: int = NEVER) -> Iterator[BatchView]:
        """Yields every batch that overlaps [start, end), for replay. Appends may run meanwhile."""
        return lookup.batches(self, start, end)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Returns the aborted transactions that a read_committed consumer of [start, end) must skip."""
        return lookup.aborted_transactions(self, start, end)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch at or below `epoch`, (-1, -1) if there is none (KIP-101)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Moving the offsets

    def truncation_errand(self, offset: int) -> Callable[[], Decoded | None] | None:
        """Returns a function that reads what the truncation needs of the producer states, for a worker thread.

        It changes nothing. What it gives is for `truncate_to`, which reads again if the log was truncated meanwhile.
        """
        return self.snapshots.decoding(self.producers, self.log_start_offset, offset, self.durability.truncations)

    def truncate_to(self, offset: int, decoded: Decoded | None = None) -> bool:
        """Removes all batches that end at or after `offset`; returns False if there were none."""
        return truncate.truncate_to(self, offset, decoded)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Removes all batches; the next append starts at `offset`."""
        truncate.truncate_fully_and_start_at(self, offset, log_start_offset)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Applies the leader's log start offset on a follower. The next retention run removes the segments before it."""
        if offset <= self.log_start_offset:
            return False
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log cannot start at {offset}, above its high watermark {self.high_watermark}",
            )
        self.start_at(offset)
        logger.info("Incremented log start offset to %d in %s-%d", offset, self.topic, self.partition)
        return True

    def delete_records(self, before_offset: int) -> int:
        """DeleteRecords: the log starts at `before_offset` (-1: the high watermark). Returns the log start offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE when it is above the high watermark.
        """
        self.check_usable()
        offset = self.high_watermark if before_offset == -1 else before_offset
        if offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
        self.advance_log_start_offset(offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int) -> int:
        """Removes the segments that retention no longer keeps; returns their number."""
        return retention.apply_retention(self, now_ms)

    def begin_retention(self, now_ms: int, *, errand_done: bool = True) -> Retiring | Errand | None:
        """The same in three parts: `run` of the job renames files on a worker, and its `end` counts them. None: nothing has expired.

        Without `errand_done` it may return file system calls that it needs first, also for a worker.
        """
        return retention.begin(self, now_ms, errand_done)

    def roll(self, now_ms: int = 0) -> int:
        """Seals the active segment and starts a new one; returns the new base offset."""
        try:
            return roll.roll(self, now_ms).base_offset
        except StorageFailure as failure:
            self.fail(failure)
            raise

    # The disk

    @property
    def unflushed_bytes(self) -> int:
        """Returns the number of bytes that recovery must check after a crash."""
        unflushed_of, segments = self.durability.unflushed_of, self.segments.from_offset(self.recovery_point)
        return max(sum(unflushed_of(segment.base_offset, segment.file.size) for segment in segments), 0)

    def snapshot_producers(self) -> None:
        """Writes a snapshot of the producer states, so that recovery after a crash need not read all batches of the segment."""
        if len(self.producers):
            try:
                self.take_snapshot()
            except StorageFailure as failure:
                self.fail(failure)
                raise

    def flush_due(self, now_ms: int) -> bool:
        """Returns True if flush.messages or flush.ms require a flush now."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        return unflushed >= self.config.flush_messages or now_ms - self.durability.flushed_ms >= self.config.flush_ms

    def flush(self, now_ms: int = 0) -> None:
        """Syncs all batches appended so far and advances the recovery point to their end, on the log's own thread.

        Raises:
            StorageFailure: the log directory goes offline.
        """
        flush.flush(self, now_ms)

    def begin_flush(self) -> FlushJob | None:
        """The same in three parts: `run` of the job makes the system calls on a worker, and `end_flush` counts them."""
        return flush.begin(self)

    def end_flush(self, job: FlushJob, now_ms: int) -> bool:
        """Returns False if the log was truncated or closed since the job began: another flush is needed. Raises as `flush`."""
        return flush.end(job, now_ms)

    def leave(self) -> None:
        """Stops all writes, also of a running flush, because the log is deleted or set aside.

        A search that still reads it must not take the directory offline, because the files are renamed.
        """
        self.stop()
        self.on_failure = None
        for segment in self.segments:
            segment.mark_removed()

    def unmap(self) -> None:
        """Unmaps the segments, on any thread. Only a running flush may still use the log."""
        self.epochs.leave()
        for segment in self.segments:
            segment.unmap()

    def close(self, clean: bool = True, *, entry: bool = True) -> bool:
        """Trims the active segment, writes a producer snapshot, flushes and closes the files. Returns False if the disk failed.

        Without `entry` the caller must sync the parent directory, which has the entry of a new log.
        """
        return flush.close(self, clean, entry)
