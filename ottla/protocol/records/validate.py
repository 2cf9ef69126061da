"""Validation of a produced record set by the partition leader, before anything is changed.

`validate_header` is the hot path: one struct read, a handful of comparisons and the CRC, no work per record. A header
that is out of the ordinary goes to the cold `_judge`, which finds the error that Kafka gives, in Kafka's order:

    no whole batch in the field                INVALID_RECORD
    length field below 14, magic not 0 to 2    CORRUPT_MESSAGE
    magic 0 or 1, a second batch               INVALID_RECORD         (an unfinished second batch is cut off, as in Kafka)
    base offset not 0                          INVALID_RECORD
    over max.message.bytes                     MESSAGE_TOO_LARGE
    under 61 bytes, wrong CRC                  CORRUPT_MESSAGE
    count, offset range, control bit, sequence INVALID_RECORD
    more records than the bytes can hold       INVALID_RECORD
    timestamps out of bounds                   INVALID_TIMESTAMP with the index of each bad record
    LogAppendTime set by the client            INVALID_TIMESTAMP on a LogAppendTime topic, otherwise accepted (see `restamp`)

`read_frames` decompresses a batch once, so that no consumer meets unreadable frames.

`check_records` decodes every record, as Kafka does for every batch. It runs if the topic's rules need the records: a
compacted topic, a lower bound on timestamps, or the broker's setting to check all records. It works in turns, because the
header of a small batch can claim millions of records, and a compressed batch can hold them. The header's count is bounded
by the payload before it is used.

Differences from Apache Kafka 4.3.1, each measured against it:
- Kafka always decodes all records; by default the header and the frames are checked here, so malformed records in a batch with a valid
  CRC pass
- unknown codecs and undecodable payloads: UNKNOWN_SERVER_ERROR there, INVALID_RECORD here (it is the client's error)
- linked lz4 blocks, which Java cannot read: UNKNOWN_SERVER_ERROR there, INVALID_RECORD here
- offset deltas that are not 0..n-1, transactional without a producer id: accepted there, INVALID_RECORD here
- a max timestamp that is not that of the records is corrected there; here it or a base timestamp beyond the bounds is
  INVALID_TIMESTAMP
- Kafka's response lists every invalid record, Ottla's the first RECORD_ERRORS_MAX; a compressed batch of over RECORDS_MAX
  records is rejected here
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, NoReturn

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchView,
    Header,
    crc32c,
    patch_timestamp,
)
from ottla.protocol.records.compression import CODECS, DECOMPRESSED_BYTES_MAX, EXPANSION_MAX, LZ4, NO_COMPRESSION
from ottla.protocol.records.frames import blocks_are_linked
from ottla.protocol.records.record import HEADERS_A_STEP, RECORD_BYTES_MIN, skim_records
from ottla.protocol.slotted import frozen
from ottla.protocol.work import RECORDS_A_TURN, TooLong, Turn, Work, do_at_once

TIMESTAMP_BOUND_NONE = 2**63 - 1
# The smallest length field of a batch of any magic (LegacyRecord's overhead).
_LENGTH_MIN = 14
_ERRORS_SHOWN_MAX = 3
# The cost, in records, of decompressing a payload that is small enough for the event loop.
_EXPANDING_COST = 100
#: The response lists at most this many invalid records of a batch; the batch fails in any case.
RECORD_ERRORS_MAX = 100
#: The limit of records, and of headers of records, in a compressed batch, whose size on the wire does not bound them. It is
#: 30 times the number that fits into an uncompressed batch of the default size.
RECORDS_MAX = 1 << 22


class RecordError(NamedTuple):
    """One line of ProduceResponse.record_errors."""

    batch_index: int
    message: str


class RecordsRejected(KafkaError):
    """A batch is rejected because of single records, which it lists."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@frozen
class RecordRules:
    """The requirements of a topic's configuration on produced records. One object is made per configuration."""

    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    timestamp_before_max_ms: int = TIMESTAMP_BOUND_NONE
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    check_records: bool = False
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
    codec: int | None = None  # the codec to store with; None: the producer's codec stays
    level: int | None = None

    @property
    def needs_records(self) -> bool:
        """Return True if `check_records` must follow `validate_header`."""
        return (
            self.check_records
            or self.compacted
            or (not self.log_append_time and self.timestamp_before_max_ms != TIMESTAMP_BOUND_NONE)
        )

    @property
    def may_ask(self) -> bool:
        """Return True if batches without compression may have to be prepared (`builder.prepare`)."""
        return self.needs_records or self.codec is not None

    def asks(self, codec: int) -> bool:
        """Return True if a batch of this codec must be prepared. A compressed one is read once in any case (`read_frames`)."""
        return codec != NO_COMPRESSION or self.needs_records or self.codec not in (None, codec)

    def checks(self, codec: int) -> bool:
        """Return True if the records of a batch of this codec must be checked one by one."""
        return self.needs_records or self.codec not in (None, codec)


def validate_header(records: Buffer, nbytes: int, rules: RecordRules, now_ms: int, turn: object = None) -> Header:
    """Return the header of the only batch in `records`, of `nbytes` bytes; raise KafkaError if the batch is invalid.

    The error lists the invalid records as far as the budget of the request's `Turn` allows; `turn` may be None.
    The batch is records[: 12 + length]: a partial second batch after it is ignored.
    """
    if nbytes < HEADER_BYTES:
        _refuse_short(memoryview(records), 0, nbytes)
    header: Header = HEADER.unpack_from(records)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        _,
        base_sequence,
        count,
    ) = header
    size = length + 12
    if (
        size != nbytes
        or magic != 2
        or base_offset
        or size > rules.max_message_bytes
        or last_offset_delta + 1 != count
        or count < 1
        or (attributes and (attributes not in _USUAL_ATTRIBUTES or (attributes & 0x10 and producer_id < 0)))
        or (base_sequence < 0 and producer_id >= 0)
        or (max_timestamp > now_ms + rules.timestamp_after_max_ms and not rules.log_append_time)
        or not _TIMESTAMP_MIN < base_timestamp <= max_timestamp
        # No record is shorter than 7 bytes.
        or (count * 7 > size - 61 and _is_too_many(count, attributes & 7, size - 61))
    ):
        return _judge(memoryview(records), 0, nbytes, header, rules, now_ms, turn)
    if crc32c(records[21:]) != crc:
        raise _bad_crc(crc)
    return header


#: A codec that needs no look, in a transaction or not. All other bits and numbers are rare enough for the cold path.
_USUAL_ATTRIBUTES = frozenset(
    number | transactional
    for number, codec in enumerate(CODECS)
    if not codec.needs_look
    for transactional in (0, TRANSACTIONAL_BIT)
)
#: Further in the past than any bound: such timestamps are judged on the cold path.
_TIMESTAMP_MIN = -(2**62)
assert (ATTRIBUTES_AT, LOG_OVERHEAD_BYTES, CODEC_MASK, MAGIC) == (21, 12, 7, 2)
assert RECORD_BYTES_MIN == 7
assert CONTROL_BIT | LOG_APPEND_TIME_BIT == 0x28 and TRANSACTIONAL_BIT == 0x10


def restamp(buf: memoryview | bytearray, pos: int, header: Header, rules: RecordRules, now_ms: int) -> int:
    """Set the topic's timestamp type on the appended batch at `pos`. Return its LogAppendTime, or -1 for CreateTime."""
    if rules.log_append_time:
        patch_timestamp(buf, pos, LOG_APPEND_TIME, now_ms)
        return now_ms
    _, _, _, _, _, attributes, _, _, max_timestamp, _, _, _, _ = header
    if attributes & LOG_APPEND_TIME_BIT:
        patch_timestamp(buf, pos, CREATE_TIME, max_timestamp)
    return NO_TIMESTAMP


def check_records(batch: BatchView, rules: RecordRules, now_ms: int, turn: Turn) -> Work[bytes]:
    """Check every record of a batch whose header is valid, in turns. Return the bytes of the records, decompressed.

    RecordsRejected lists the invalid ones.
    """
    if batch.count > RECORDS_A_TURN:
        yield None
    data = yield from read_frames(batch, rules, turn)
    try:
        yield from _check_each(batch, data, rules, now_ms, turn)
    except RecordsRejected:
        raise
    except KafkaError as fault:
        raise _not_retriable(fault) from None
    return data


def read_frames(batch: BatchView, rules: RecordRules, turn: Turn) -> Work[bytes]:
    """Return the bytes of the records, decompressed. Frames that cannot be read would stop the consumers of the partition.

    Raises:
        KafkaError: INVALID_RECORD, they cannot be read, or hold more than one batch may.
    """
    try:
        data = yield from batch.expanded(turn, rules.max_decompressed_bytes)
    except KafkaError as fault:
        raise _not_retriable(fault) from None
    if batch.count * RECORD_BYTES_MIN > len(data):
        raise _invalid(f"{batch.count} records in {len(data)} bytes")
    return data


def _not_retriable(fault: KafkaError) -> KafkaError:
    """Return INVALID_RECORD: for CORRUPT_MESSAGE a producer would send the same bytes again until delivery.timeout.ms."""
    return KafkaError(ErrorCode.INVALID_RECORD, fault.message)


def _check_each(batch: BatchView, data: bytes, rules: RecordRules, now_ms: int, turn: Turn) -> Work[None]:
    stray: list[RecordError] = []
    late: list[RecordError] = []
    oldest = now_ms - rules.timestamp_before_max_ms
    newest = now_ms + rules.timestamp_after_max_ms
    index, headers = -1, 0
    base_offset = batch.base_offset
    for facts in skim_records(data, batch.count, base_offset, batch.base_timestamp, batch.append_time):
        if turn.spend(1 if facts else HEADERS_A_STEP):
            yield None
        if facts is None:
            headers += HEADERS_A_STEP
            if batch.compression and headers > RECORDS_MAX:
                raise _invalid(f"more than {RECORDS_MAX} record headers")
            continue
        index += 1
        offset, timestamp, has_key = facts
        if offset != base_offset + index:
            stray.append(RecordError(index, f"offset delta is {offset - base_offset}, expected {index}"))
        elif rules.compacted and not has_key:
            stray.append(RecordError(index, "a compacted topic cannot accept a record without a key"))
        elif not (rules.log_append_time or timestamp == NO_TIMESTAMP or oldest <= timestamp <= newest):
            late.append(RecordError(index, f"timestamp {timestamp} is outside [{oldest}, {newest}]"))
        else:
            continue
        if len(stray) + len(late) == RECORD_ERRORS_MAX:
            break
    if late:
        errors = sorted(stray + late)
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, "records were rejected for their timestamps", errors)
    if stray:
        shown = "; ".join(f"{index}: {message}" for index, message in stray[:_ERRORS_SHOWN_MAX])
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"{len(stray)} records were rejected: {shown}", stray)


def _judge(
    buf: memoryview, pos: int, end: int, header: Header, rules: RecordRules, now_ms: int, turn: object
) -> Header:
    """Judge a header on the cold path of `validate_header`: raise Kafka's error, or accept an unusual but valid batch."""
    base_offset, length, _, _, crc, attributes, _, _, _, _, _, _, _ = header
    _check_alone(buf, pos, end)
    size = length + LOG_OVERHEAD_BYTES
    if base_offset:
        raise _invalid(f"base offset is {base_offset}, a produced batch starts at 0")
    if size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"record batch of {size} bytes, max.message.bytes is {rules.max_message_bytes}"
        )
    if size < HEADER_BYTES or crc32c(buf[pos + ATTRIBUTES_AT : pos + size]) != crc:
        raise _bad_crc(crc)
    _check_claims(header, size - HEADER_BYTES)
    if attributes & CODEC_MASK == LZ4 and blocks_are_linked(buf[pos + HEADER_BYTES : pos + size]):
        raise _invalid("lz4 frame has linked blocks, Java clients cannot read it: write independent blocks")
    _check_timestamps(buf[pos : pos + size], header, rules, now_ms, turn)
    return header


def _check_claims(header: Header, payload_bytes: int) -> None:
    """Check the header's record count, producer fields and attributes."""
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count = header
    if attributes & CODEC_MASK >= len(CODECS):
        raise _invalid(f"unknown compression codec {attributes & CODEC_MASK}")
    if last_offset_delta < 0 or count < 1 or count != last_offset_delta + 1:
        raise _invalid(f"record count {count} does not fit last offset delta {last_offset_delta}")
    if _is_too_many(count, attributes & CODEC_MASK, payload_bytes):
        raise _invalid(f"{count} records in {payload_bytes} bytes, or in a compressed batch more than {RECORDS_MAX}")
    if attributes & CONTROL_BIT:
        raise _invalid("clients may not write control records")
    if producer_id >= 0 and base_sequence < 0:
        raise _invalid(f"base sequence {base_sequence} with producer id {producer_id}")
    if attributes & TRANSACTIONAL_BIT and producer_id < 0:
        raise _invalid("transactional batch without a producer id")


def _is_too_many(count: int, codec: int, payload_bytes: int) -> bool:
    """Return True if the payload cannot hold `count` records: offsets would be assigned to records that do not exist."""
    return count * RECORD_BYTES_MIN > payload_bytes * EXPANSION_MAX[codec] or (
        codec != NO_COMPRESSION and count > RECORDS_MAX
    )


def _check_timestamps(batch: memoryview, header: Header, rules: RecordRules, now_ms: int, turn: object) -> None:
    _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
    if attributes & LOG_APPEND_TIME_BIT and (rules.log_append_time or max_timestamp == NO_TIMESTAMP):
        named = min(count, RECORD_ERRORS_MAX)
        if not _takes_from(turn, named):
            named = 1
        raise RecordsRejected(
            ErrorCode.INVALID_TIMESTAMP,
            "records were rejected for their timestamps",
            [RecordError(index, "a producer may not set LogAppendTime") for index in range(named)],
        )
    oldest, newest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    latest = max(base_timestamp, max_timestamp)
    if not rules.log_append_time and (latest > newest or base_timestamp < min(oldest, _TIMESTAMP_MIN)):
        # The header proves the error already: the invalid records are searched only if that fits into the budget.
        if _takes_from(turn, _EXPANDING_COST + count):
            with suppress(TooLong):
                do_at_once(check_records(BatchView(batch), rules, now_ms, Turn()))
        wrong = base_timestamp if latest <= newest else latest
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {wrong} is outside [{oldest}, {newest}]")


def _takes_from(turn: object, records: int) -> bool:
    """Take budget for decoding this many records only for a better error. A request may hold thousands of invalid batches."""
    if not isinstance(turn, Turn):
        return records <= RECORDS_A_TURN
    if turn.left <= records:
        return False
    turn.left -= records
    return True


def _check_alone(buf: memoryview, pos: int, end: int) -> None:
    """Raise unless there is exactly one complete batch of magic 2, without a complete second one after it."""
    size = _next_size(buf, pos, end)
    if size is None:
        raise _invalid("no complete record batch")
    magic = buf[pos + MAGIC_AT]
    if magic != MAGIC:
        raise _invalid(f"record batch has magic {magic}, only {MAGIC} is served")
    if _next_size(buf, pos + size, end) is not None:
        raise _invalid("more than one record batch for a partition")


def _next_size(buf: memoryview, pos: int, end: int) -> int | None:
    """Return the size of the next batch of any magic, or None if the batch is partial."""
    if end - pos < LOG_OVERHEAD_BYTES:
        return None
    length = int.from_bytes(buf[pos + 8 : pos + LOG_OVERHEAD_BYTES], "big", signed=True)
    if length < _LENGTH_MIN:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch has length {length}")
    if end - pos <= MAGIC_AT:
        return None
    if buf[pos + MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch has magic {buf[pos + MAGIC_AT]}")
    size = length + LOG_OVERHEAD_BYTES
    return size if size <= end - pos else None


def _refuse_short(buf: memoryview, pos: int, end: int) -> NoReturn:
    _check_alone(buf, pos, end)
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of {end - pos} bytes is smaller than its header")


def _bad_crc(crc: int) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch does not match its crc {crc:#x}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
