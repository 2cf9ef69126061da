"""Work on a log that does not change it: searches by timestamp in the segments on the local disk, and the preparation of a
client's batch.

Searches by timestamp decode clients' batches, and their headers may make a search read the whole log. So the searches are work
in turns (`protocol.work`), and decode only the offset and timestamp of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import ATTRIBUTES, CODEC_MASK, LAST_OFFSET_DELTA, MAX_TIMESTAMP, BatchView
from ottla.protocol.records.builder import Prepared, prepare
from ottla.protocol.records.record import iter_times
from ottla.protocol.records.validate import validate_header
from ottla.protocol.work import BYTES_A_TURN, RELEASE, Turn, Work
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_indexes import TimestampAndOffset

# Timestamp, offset, leader epoch of a record.
Found: TypeAlias = tuple[int, int, int]
NONE_FOUND: Found = (-1, -1, -1)
# Costs in records (`protocol.work`): of a segment's largest timestamp, and of finding a position in a log.
SEGMENT_COST = 32
SEARCH_COST = 16


def offset_for_timestamp(log: Log, timestamp: int, turn: Turn) -> Work[Found | None]:
    """Find (timestamp, offset, leader epoch) of the first record whose timestamp is at least `timestamp`."""
    offset = start = log.local_start_offset
    while True:
        batch = yield from _next_claiming(log, offset, timestamp, turn)
        if batch is None:
            return None
        offset, epoch = batch.next_offset, batch.partition_leader_epoch
        data, times = yield from _times(log, batch, turn)
        for record_offset, record_timestamp in times:
            if record_timestamp >= timestamp and record_offset >= start:
                return record_timestamp, record_offset, epoch
            if turn.spend(1):
                yield None
        if len(data) > BYTES_A_TURN:
            del data, times
            yield RELEASE


def max_timestamp(log: Log, turn: Turn) -> Work[Found | None]:
    """Find (timestamp, offset, leader epoch) of the first record with the largest timestamp.

    Produce does not verify a header's max timestamp. If no record has the largest one, or its record lies below the log start
    offset, every batch whose header has a larger max timestamp than the best record so far is decoded.
    """
    start = log.local_start_offset
    largest = yield from _largest_claim(log, start, turn)
    best = NONE_FOUND
    if largest.offset >= start:
        batch = next(log.batches(largest.offset, largest.offset + 1), None)
        if batch is not None:
            best = yield from _largest_of(log, batch, start, turn)
    offset = start
    while best[0] < largest.timestamp:
        batch = yield from _next_claiming(log, offset, best[0] + 1, turn)
        if batch is None:
            break
        offset = batch.next_offset
        best = max(best, (yield from _largest_of(log, batch, start, turn)), key=lambda found: found[0])
    return None if best is NONE_FOUND else best


def _largest_claim(log: Log, start: int, turn: Turn) -> Work[TimestampAndOffset]:
    largest = TimestampAndOffset(-1, -1)
    for segment in log.segments.from_offset(start):
        if turn.spend(SEGMENT_COST):
            yield None
        if not segment.removed:
            claim = segment.indexes.largest_timestamp()
            if claim.timestamp > largest.timestamp:
                largest = claim
    return largest


def _largest_of(log: Log, batch: BatchView, start: int, turn: Turn) -> Work[Found]:
    """Find the first record of the batch, from `start` on, with the largest timestamp."""
    claimed, epoch = batch.max_timestamp, batch.partition_leader_epoch
    best = NONE_FOUND
    data, times = yield from _times(log, batch, turn)
    for offset, timestamp in times:
        if timestamp > best[0] and offset >= start:
            best = timestamp, offset, epoch
            if timestamp == claimed:
                break
        if turn.spend(1):
            yield None
    if len(data) > BYTES_A_TURN:
        del data, times
        yield RELEASE
    return best


def _next_claiming(log: Log, offset: int, timestamp: int, turn: Turn) -> Work[BatchView | None]:
    """Find the first batch from `offset` on whose header has a max timestamp of at least `timestamp`.

    Positions are looked up again after each turn, because the log may have been truncated or compacted meanwhile.
    """
    while True:
        if turn.spend(SEARCH_COST):
            yield None
        if log.closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log} was closed")
        for segment in log.segments.from_offset(offset):
            offset = max(offset, segment.base_offset)
            if turn.spend(SEGMENT_COST):
                break
            if segment.indexes.largest_timestamp().timestamp < timestamp:
                continue
            for batch in _views(segment, max(segment.indexes.offset_before(timestamp), offset)):
                if batch.last_offset < offset:
                    continue
                if batch.max_timestamp >= timestamp:
                    return batch
                offset = batch.next_offset
                if turn.spend(1):
                    break
            else:
                continue
            break
        else:
            return None
        yield None


def _times(log: Log, batch: BatchView, turn: Turn) -> Work[tuple[bytes, Iterator[tuple[int, int]]]]:
    """Decompress the batch's records and decode the offset and timestamp of each. The batch's buffer may be invalid afterwards."""
    count, base_offset, base_timestamp = batch.count, batch.base_offset, batch.base_timestamp
    append_time = batch.append_time
    data = yield from batch.expanded(turn, log.config.max_decompressed_message_bytes)
    return data, iter_times(data, count, base_offset, base_timestamp, append_time)


def _views(segment: Segment, offset: int) -> Iterator[BatchView]:
    for position, following, _, _ in segment.from_offset(offset):
        yield BatchView(segment.file.view()[position:following])


def prepare_append(log: Log, records: memoryview, now_ms: int, turn: Turn) -> Work[Prepared | None]:
    """Prepare a client's batch for `append`; None if that is not necessary. `records` must not change until it is done."""
    rules = log.rules
    try:
        header = validate_header(records, len(records), rules, now_ms, turn)
    except KafkaError:
        return None  # `append` raises the same error
    job = log.room.disk_job(len(records), log.log_end_offset + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP], now_ms)
    if job is not None:
        yield job
    if not rules.asks(header[ATTRIBUTES] & CODEC_MASK):
        return None if job is None else Prepared(rules, None)
    try:
        return Prepared(rules, (yield from prepare(BatchView(records), rules, now_ms, turn)))
    except KafkaError as error:
        error.__traceback__ = error.__context__ = None  # their frames keep the decompressed records
        return Prepared(rules, error)


def offsets_before(log: Log, timestamp: int, found: int, most: int) -> list[int]:
    """Return, from a time on backwards, the offsets at which segments begin, and first the high watermark (ListOffsets v0).

    `timestamp` -1 is the end and -2 the start; for any other `found` is the first offset of that time, or -1.
    """
    limit = log.high_watermark
    bases = [base for base in log.segments.bases if log.log_start_offset < base < limit]
    offsets = sorted({log.log_start_offset, *bases, limit}, reverse=True)
    if timestamp == -2:
        offsets = offsets[-1:]
    elif timestamp != -1 and found >= 0:
        offsets = [base for base in offsets if base <= found]
    return offsets[: max(0, most)]
