"""Trusted appends: batches that a leader has validated (replication, raft), and batches of this node's coordinators.

Every batch is checked to be complete and undamaged. A leader's batches keep offsets and epochs; a coordinator's batch gets
them here. A marker ends its transaction here, and is added to the transaction index if it aborts.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    COUNT,
    HEADER,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchView,
    Header,
    check_batch,
    complete_batch,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.validate import restamp
from ottla.protocol.work import TooLong
from ottla.storage.errors import StorageFailure, UnexpectedAppendOffset
from ottla.storage.log import truncate
from ottla.storage.log.log import Appended, Log
from ottla.storage.log.replay import read_marker, update_producers
from ottla.storage.producers.producer_states import Origin
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment

OFFSET_MAX = 2**63 - 1


def append_trusted(
    log: Log,
    records: bytes | bytearray | memoryview,
    leader_epoch: int,
    now_ms: int,
    origin: Origin,
    transaction_version: int = 0,
    *,
    may_wait: bool = True,
) -> Appended:
    """Append batches of a leader or of a coordinator; `Origin` lists the checks and the assigned fields.

    Raises:
        KafkaError: the batches are invalid; nothing has changed.
        TooLong: a leader's batches may not wait for the disk, and there is a `disk_job`; nothing has changed.
        StorageFailure: the disk failed (`DiskFull`: a later append may succeed); nothing has changed.
        UnexpectedAppendOffset: the replicated batches do not continue this log.
    """
    view = memoryview(records)
    if origin is Origin.COORDINATOR:
        return _append_own(log, view, leader_epoch, now_ms, transaction_version)
    return _append_as_is(log, view, now_ms, origin, may_wait)


def _append_own(log: Log, view: memoryview, leader_epoch: int, now_ms: int, transaction_version: int) -> Appended:
    header = check_batch(view, 0, len(view))
    size = header[LENGTH] + LOG_OVERHEAD_BYTES
    if size != len(view):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a coordinator appends one batch at a time")
    _, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
    if delta < 0 or count != delta + 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records do not fit last offset delta {delta}")
    if size > log.config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes, max.message.bytes is {log.config.max_message_bytes}"
        )
    marker: EndTxnMarker | None = None
    if producer_id >= 0:
        if attributes & CONTROL_BIT:
            marker, _ = read_marker(BatchView(view))
            log.producers.check_marker(producer_id, epoch, marker, transaction_version)
        else:
            is_transactional = attributes & TRANSACTIONAL_BIT != 0
            log.producers.check(
                producer_id, epoch, sequence, count, is_transactional, Origin.COORDINATOR, log.log_end_offset
            )
    first = log.log_end_offset
    last = first + delta
    if log.rules.log_append_time:
        max_timestamp = now_ms
    segment = log.segments.active
    if not log.room.has_room(segment.file, size, last, max_timestamp, now_ms):
        log.room.check_size(size)
        segment = log.room.make_room(size, first, last, max_timestamp, now_ms, first)
    if marker is not None and not marker.committed:
        _make_room_for_aborts(log, segment, 1)
    if leader_epoch >= 0 and leader_epoch != log.epochs.assigned:
        log.epochs.assign(leader_epoch, first)
    try:
        position = segment.append(view, size, first, last, leader_epoch, max_timestamp)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    append_time = NO_TIMESTAMP
    if log.rules.log_append_time:
        append_time = restamp(segment.file.view(), position, header, log.rules, now_ms)
    log.appended_to(last + 1)
    if producer_id >= 0:
        stored: Header = HEADER.unpack_from(
            segment.file.view(), position
        )  # the header with its assigned offset and append time
        _update_producers(log, segment, stored, segment.file.view()[position : position + size])
    if not position:
        log.room.on_new_active()
    return Appended(first, last, append_time, log.log_start_offset)


def _append_as_is(log: Log, view: memoryview, now_ms: int, origin: Origin, may_wait: bool) -> Appended:
    expected = log.log_end_offset
    if log.local_start_offset == expected and origin is Origin.REPLICATION:
        expected = _offset_around(expected, view)
    headers, total, last, max_timestamp, has_producers = _read_headers(
        view, origin, expected, log.epochs.epoch_of(expected - 1)
    )
    if not headers:
        return Appended(log.log_end_offset, log.log_end_offset - 1, NO_TIMESTAMP, log.log_start_offset)
    if expected < log.log_end_offset:
        truncate.truncate_fully_and_start_at(log, expected, log.log_start_offset)
        may_wait = True  # the log has changed
    first = headers[0][BASE_OFFSET]
    if total > log.config.segment_bytes or last - first > RELATIVE_OFFSET_MAX:
        # Kafka rejects such a record set; appending its batches one by one has the same result without an error.
        start = 0
        for header in headers:
            end = start + header[LENGTH] + LOG_OVERHEAD_BYTES
            of_batch = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            _write(log, view[start:end], [header], of_batch, header[MAX_TIMESTAMP], now_ms, has_producers, may_wait)
            start, may_wait = end, True
    else:
        _write(log, view[:total], headers, last, max_timestamp, now_ms, has_producers, may_wait)
    return tuple.__new__(Appended, (first, last, NO_TIMESTAMP, log.log_start_offset, False))


def _offset_around(start: int, view: memoryview) -> int:
    """Return the base offset for an empty log that starts at `start`: that of the leader's first batch, if it contains `start`.

    The first records of that batch were deleted, and the log appends the complete batch, as Kafka does. Otherwise a follower
    that lost the batch in a crash, but not the log start offset, would fetch it for ever.
    """
    header = complete_batch(view, 0, len(view))
    if header is None:
        return start
    base = header[BASE_OFFSET]
    return base if 0 <= base < start <= base + header[LAST_OFFSET_DELTA] else start


def _read_headers(
    view: memoryview, origin: Origin, expected: int, epoch: int
) -> tuple[list[Header], int, int, int, bool]:
    """Return the headers of the complete batches in `view`, and of all: bytes, last offset, largest timestamp, whether one has a producer.

    A partial batch at the end is left out. They follow offset `expected` - 1, whose batch has leader epoch `epoch`. Epochs in a log never
    decrease: recovery would end the log there.
    """
    headers: list[Header] = []
    position, end, largest, has_producers = 0, len(view), NO_TIMESTAMP, False
    while position < end:
        header = complete_batch(view, position, end)
        if header is None:
            break
        base, length, leader_epoch, _, _, attributes, delta, _, max_timestamp, producer_id, _, _, count = header
        if delta < 0 or base + delta >= OFFSET_MAX:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {base} has last offset delta {delta}")
        if base < expected or (origin is Origin.RAFT and base != expected):
            raise UnexpectedAppendOffset(base, expected)
        if leader_epoch < epoch:
            reason = f"batch at offset {base} is of leader epoch {leader_epoch}, and the one before it of {epoch}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, reason)
        epoch, expected = leader_epoch, base + delta + 1
        following = position + length + LOG_OVERHEAD_BYTES
        if producer_id >= 0:
            has_producers = True
            if attributes & CONTROL_BIT and count > 0:
                # A malformed marker must be rejected before it is in the log.
                read_marker(BatchView(view[position:following]))
        if max_timestamp > largest:
            largest = max_timestamp
        headers.append(header)
        position = following
    return headers, position, expected - 1, largest, has_producers


def _write(
    log: Log,
    view: memoryview,
    headers: list[Header],
    last: int,
    max_timestamp: int,
    now_ms: int,
    has_producers: bool,
    may_wait: bool,
) -> None:
    size, segment, room = len(view), log.segments.active, log.room
    if not room.has_room(segment.file, size, last, max_timestamp, now_ms):
        if not may_wait and room.disk_job(size, last, max_timestamp, now_ms) is not None:
            raise TooLong
        segment = room.make_room(size, headers[0][BASE_OFFSET], last, max_timestamp, now_ms, log.log_end_offset)
    if has_producers and (aborts := _aborts(view, headers)):
        _make_room_for_aborts(log, segment, aborts)
    latest = log.epochs.latest
    if not headers[0][PARTITION_LEADER_EPOCH] == latest == headers[-1][PARTITION_LEADER_EPOCH]:
        for header in headers:
            epoch = header[PARTITION_LEADER_EPOCH]
            if epoch != log.epochs.latest and epoch >= 0:
                log.epochs.assign(epoch, header[BASE_OFFSET])  # drops an epoch that began here without a batch
    position = segment.file.size
    try:
        segment.append_all(view, size, headers, max_timestamp)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    log.appended_to(last + 1)
    if has_producers:
        start = 0
        for header in headers:
            end = start + header[LENGTH] + LOG_OVERHEAD_BYTES
            if header[PRODUCER_ID] >= 0:
                _update_producers(log, segment, header, view[start:end])
            start = end
    if not position:
        room.on_new_active()


def _aborts(view: memoryview, headers: list[Header]) -> int:
    """Return how many of the batches are abort markers."""
    aborts = start = 0
    for header in headers:
        end = start + header[LENGTH] + LOG_OVERHEAD_BYTES
        if header[ATTRIBUTES] & CONTROL_BIT and header[PRODUCER_ID] >= 0 < header[COUNT]:
            aborts += not read_marker(BatchView(view[start:end]))[0].committed
        start = end
    return aborts


def _make_room_for_aborts(log: Log, segment: Segment, count: int) -> None:
    """Room for the entries comes before the markers, so that a full disk refuses both."""
    try:
        segment.txn_index.make_room(log.files, count)
    except StorageFailure as failure:
        log.fail(failure)
        raise


def _update_producers(log: Log, segment: Segment, header: Header, batch: memoryview) -> None:
    aborted = update_producers(log.producers, header, batch)
    if aborted is None:
        return
    try:
        segment.txn_index.append(log.files, aborted)
    except StorageFailure as failure:
        # The marker is in the log: without its entry, aborted records would be read as committed. So even a full disk, on a
        # file system that could not promise the room, takes the directory offline here; recovery writes the entry.
        log.fail(StorageFailure(failure.path, failure.cause))
        raise
