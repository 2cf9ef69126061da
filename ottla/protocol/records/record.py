"""The records of a batch v2: decode, encode, and split them without decoding them.

    length varint, then: attributes i8 (unused) | timestamp delta varlong | offset delta varint | key | value | headers

Keys and values are a varint length (negative: null) and bytes; headers a varint count, then for each its UTF-8 key and
its value. Every length is checked against the bytes that are there. Header keys that are not UTF-8 survive a round trip
(surrogateescape), since Kafka's broker does not look at them either.

Compaction reads the key of every record of a log and copies the surviving records byte for byte (`split_records`). This takes a
third of the time of `iter_records`. A negative length (null) has an odd first byte, as zigzag puts the sign into the lowest bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.primitives import read_varint, read_varlong, varint, varlong

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

# length, attributes, timestamp delta, offset delta, null key, null value, no headers
RECORD_BYTES_MIN = 7
#: The number of headers that are skipped between two checks of the turn's budget.
HEADERS_A_STEP = 1024
_INT64_END = 1 << 63
# A base timestamp below this cannot overflow with a delta of one byte; it lies after the year 100 million.
_TAME_TIMESTAMP = 1 << 62
# This bypasses NamedTuple's constructor and takes a third of its time per record.
_new_tuple = tuple.__new__
_SHORT_MAX = 8192
_SHORT = tuple(varint(number) for number in range(_SHORT_MAX))


class Record(NamedTuple):
    """A record with its offset. Its timestamp is the batch's append time if the timestamp type is LogAppendTime."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


class NewRecord(NamedTuple):
    """A record without an offset. A plain tuple in this order is accepted in its place."""

    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    headers: RecordHeaders = ()


class RecordFacts(NamedTuple):
    """The metadata of a record: its key, value and headers are not copied."""

    offset: int
    timestamp: int
    has_key: bool


def iter_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    *,
    start: int = 0,
) -> Iterator[Record]:
    """Yield the `count` records that fill `data` from `start` on exactly. Raises INVALID_RECORD, as Kafka does, if they do not."""
    _check_count(count, data)
    pos, index = start, 0
    size = len(data)
    wild = not -_TAME_TIMESTAMP <= base_timestamp <= _TAME_TIMESTAMP
    try:
        # Varints of one byte, which are the most frequent, are read in place.
        for index in range(count):
            length, pos = _varint(data, pos)
            end = pos + length
            if length < 0 or end > size:
                raise _invalid(f"record {index} of {length} bytes where {size - pos} are left")
            byte = data[pos + 1]  # after the attributes, which no version uses
            if byte < 128 and not wild:
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                pos += 2
            else:
                timestamp, pos = _read_timestamp(data, pos + 1, base_timestamp)
            byte = data[pos]
            if byte < 128:
                offset = base_offset + ((byte >> 1) ^ -(byte & 1))
                pos += 1
            else:
                delta, pos = _varint(data, pos)
                offset = base_offset + delta
            key, pos = _read_bytes(data, pos, end)
            value, pos = _read_bytes(data, pos, end)
            if data[pos] == 0:
                headers: RecordHeaders = ()
                pos += 1
            else:
                headers, pos = _read_headers(data, pos, end)
            if pos != end:
                raise _wrong_length(index, length, pos - end)
            yield _new_tuple(Record, (offset, timestamp if append_time is None else append_time, key, value, headers))
    except (IndexError, MalformedMessage) as fault:
        raise _invalid(f"record {index} of {count} is malformed: {fault}") from None
    _check_end(pos, data, count)


def skip_records(data: bytes, count: int, start: int) -> int:
    """Return the position after `count` records, of which the lengths alone are read. Raises INVALID_RECORD if they are not there."""
    pos, size = start, len(data)
    try:
        for _ in range(count):
            byte = data[pos]
            if byte < 128:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = _varint(data, pos)
            pos += length
            if length < 0 or pos > size:
                raise _invalid(f"a record of {length} bytes ends at byte {pos} of {size}")
    except (IndexError, MalformedMessage) as fault:
        raise _invalid(f"a record is malformed: {fault}") from None
    return pos


def skim_records(
    data: bytes | memoryview, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[RecordFacts | None]:
    """Check every length as `iter_records` does, and copy nothing: a record may be as large as its batch.

    One record can hold millions of headers: None is yielded after every HEADERS_A_STEP of them.
    """
    _check_count(count, data)
    pos = index = 0
    size = len(data)
    try:
        for index in range(count):
            length, pos = _varint(data, pos)
            end = pos + length
            if length < 0 or end > size:
                raise _invalid(f"record {index} of {length} bytes where {size - pos} are left")
            timestamp, pos = _read_timestamp(data, pos + 1, base_timestamp)
            delta, pos = _varint(data, pos)
            has_key = not data[pos] & 1  # zigzag: negative lengths are odd
            pos = _skip_bytes(data, _skip_bytes(data, pos, end), end)
            headers, pos = _varint(data, pos)
            # Each header takes at least two bytes.
            if headers < 0 or headers > end - pos:
                raise _invalid(f"{headers} headers in {end - pos} bytes")
            for skipped in range(headers):
                if skipped and not skipped % HEADERS_A_STEP:
                    yield None
                if data[pos] & 1:
                    raise _invalid("null header key")
                pos = _skip_bytes(data, _skip_bytes(data, pos, end), end)
            if pos != end:
                raise _wrong_length(index, length, pos - end)
            yield _new_tuple(
                RecordFacts, (base_offset + delta, timestamp if append_time is None else append_time, has_key)
            )
    except (IndexError, MalformedMessage) as fault:
        raise _invalid(f"record {index} of {count} is malformed: {fault}") from None
    _check_end(pos, data, count)


def iter_times(
    data: bytes | memoryview, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (offset, timestamp) of each record; its other fields are skipped without validation."""
    pos = index = 0
    size = len(data)
    try:
        for index in range(count):
            length, pos = _varint(data, pos)
            end = pos + length
            if length < 0 or end > size:
                raise _invalid(f"record {index} of {length} bytes where {size - pos} are left")
            timestamp, pos = _read_timestamp(data, pos + 1, base_timestamp)
            delta, pos = _varint(data, pos)
            yield base_offset + delta, timestamp if append_time is None else append_time
            pos = end
    except (IndexError, MalformedMessage) as fault:
        raise _invalid(f"record {index} of {count} is malformed: {fault}") from None


def _check_count(count: int, data: bytes | memoryview) -> None:
    # No record is shorter than seven bytes: this bounds the work that a false count can cause.
    if count < 0 or count > len(data) // RECORD_BYTES_MIN:
        raise _invalid(f"record count {count} in {len(data)} bytes")


def _check_end(pos: int, data: bytes | memoryview, count: int) -> None:
    if pos != len(data):
        raise _invalid(f"{len(data) - pos} bytes are left after the {count} declared records")


def _wrong_length(index: int, length: int, over: int) -> KafkaError:
    return _invalid(f"record {index} says {length} bytes, its fields take {length + over}")


def _read_timestamp(data: bytes | memoryview, pos: int, base_timestamp: int) -> tuple[int, int]:
    """Return base plus delta. The sum may exceed 64 bits; it wraps as Java's does."""
    byte = data[pos]
    if byte < 128:
        timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
        pos += 1
    else:
        delta, pos = read_varlong(data, pos) if data[pos + 1] > 127 else _varint(data, pos)
        timestamp = base_timestamp + delta
    if not -_INT64_END <= timestamp < _INT64_END:
        timestamp = (timestamp + _INT64_END) % (2 * _INT64_END) - _INT64_END
    return timestamp, pos


def _varint(data: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Read a varint as `read_varint` does, in one call for numbers of one or two bytes, which nearly all in records are."""
    byte = data[pos]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    high = data[pos + 1]
    if high < 128:
        return ((byte & 127 | high << 7) >> 1) ^ -(byte & 1), pos + 2
    return read_varint(data, pos)


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length = data[pos]
    if length < 128:
        length = (length >> 1) ^ -(length & 1)
        pos += 1
    else:
        length, pos = _varint(data, pos)
    if length < 0:
        return None, pos
    stop = pos + length
    if stop > end:
        raise _invalid(f"field of {length} bytes where the record has {end - pos} left")
    return data[pos:stop], stop


def _read_headers(data: bytes, pos: int, end: int) -> tuple[RecordHeaders, int]:
    count, pos = _varint(data, pos)
    # Each header takes at least two bytes, so this check also bounds the allocated memory.
    if count < 0 or count > end - pos:
        raise _invalid(f"{count} headers in {end - pos} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, pos = _read_bytes(data, pos, end)
        if key is None:
            raise _invalid("null header key")
        value, pos = _read_bytes(data, pos, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), pos


def _skip_bytes(data: bytes | memoryview, pos: int, end: int) -> int:
    length, pos = _varint(data, pos)
    stop = pos + length if length > 0 else pos
    if stop > end:
        raise _invalid(f"field of {length} bytes where the record has {end - pos} left")
    return stop


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: RecordHeaders = ()
) -> bytes:
    """Return the record with its length in front."""
    # Lengths up to 8191 come from a table: most keys, values and deltas are that small.
    parts = (
        b"\0",
        _SHORT[timestamp_delta] if 0 <= timestamp_delta < _SHORT_MAX else varlong(timestamp_delta),
        _SHORT[offset_delta] if 0 <= offset_delta < _SHORT_MAX else varint(offset_delta),
        b"\x01" if key is None else _SHORT[len(key)] + key if len(key) < _SHORT_MAX else varint(len(key)) + key,
        b"\x01"
        if value is None
        else _SHORT[len(value)] + value
        if len(value) < _SHORT_MAX
        else varint(len(value)) + value,
        _encode_headers(headers) if headers else b"\0",
    )
    body = b"".join(parts)
    length = len(body)
    return (_SHORT[length] if length < _SHORT_MAX else varint(length)) + body


def _encode_headers(headers: RecordHeaders) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(key)), key)
        parts += (b"\x01",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


class EncodedRecord(NamedTuple):
    """Place of an encoded record: `start` and `end` are positions in the payload, the length in front of the record included."""

    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    start: int
    end: int


def split_records(data: bytes, count: int, last_offset_delta: int) -> list[EncodedRecord]:
    """Split `data` into exactly `count` records with increasing offset deltas, none above `last_offset_delta`.

    Raises INVALID_RECORD if it does not consist of these. Values and headers are not checked.
    """
    _check_count(count, data)
    records: list[EncodedRecord] = []
    try:
        pos = _split_into(records, data, count)
    except (IndexError, MalformedMessage) as fault:
        raise _invalid(f"record {len(records)} of {count} is malformed: {fault}") from None
    _check_end(pos, data, count)
    if records and records[-1].offset_delta > last_offset_delta:
        raise _invalid(f"offset delta {records[-1].offset_delta} above the batch's last, {last_offset_delta}")
    return records


def _split_into(records: list[EncodedRecord], data: bytes, count: int) -> int:
    """Append the records and return the position after them. Varints of one byte, most of all, are read in place."""
    add = records.append
    pos, before, size = 0, -1, len(data)
    for _ in range(count):
        start = pos
        byte = data[pos]
        if byte < 128:
            length = (byte >> 1) ^ -(byte & 1)
            pos += 1
        else:
            length, pos = _varint(data, pos)
        end = pos + length
        if end > size:
            raise _invalid(f"record {len(records)} of {length} bytes where {size - pos} are left")
        pos += 1  # the attributes, which no version uses
        while data[pos] > 127:
            pos += 1
        byte = data[pos + 1]
        if byte < 128:
            delta = (byte >> 1) ^ -(byte & 1)
            pos += 2
        else:
            delta, pos = _varint(data, pos + 1)
        if delta <= before:
            raise _invalid(f"offset delta {delta} of record {len(records)} follows {before}")
        before = delta
        byte = data[pos]
        if byte < 128:
            length = (byte >> 1) ^ -(byte & 1)
            pos += 1
        else:
            length, pos = _varint(data, pos)
        if length < 0:
            key = None
        else:
            key = data[pos : pos + length]
            pos += length
        if pos >= end:
            raise _invalid(f"the key of record {len(records)} leaves no room for its value")
        add(_new_tuple(EncodedRecord, (delta, key, data[pos] & 1 == 1, start, end)))
        pos = end
    return pos


def timestamp_delta(data: bytes, record: EncodedRecord) -> int:
    _, pos = read_varint(data, record.start)
    delta, _ = read_varlong(data, pos + 1)
    return delta


def join_records(data: bytes, records: Iterable[EncodedRecord]) -> bytes:
    """Return the records as they lie in `data`, one after the other."""
    return b"".join([data[record.start : record.end] for record in records])


def with_timestamp_delta(data: bytes, record: EncodedRecord, delta: bytes) -> bytes:
    """Return the record with another (encoded) timestamp delta."""
    _, pos = read_varint(data, record.start)
    _, after = read_varlong(data, pos + 1)
    body = data[pos : pos + 1] + delta + data[after : record.end]
    return varint(len(body)) + body
