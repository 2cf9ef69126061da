"""Message sets, the format of records before batches (magic 0 and 1), for clients of releases before 4.0: Produce v0-2 and
Fetch v0-3.

Logs have only batches (magic 2). The messages that such a client produces become one batch, as in Kafka since 0.11, and the
batches that it fetches become messages again: without headers, without control batches, and without timestamps in magic 0.

    offset i64 | size i32 | crc u32 of what follows | magic i8 | attributes i8 | timestamp i64 (magic 1) | key | value

Key and value are an int32 length (-1: null) and bytes. A message with a codec is a wrapper: its value is a message set, compressed.
In magic 1 the wrapper alone has the time where that is the broker's. Messages are fetched without a codec, which every client reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, cast
from zlib import crc32

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import MAGIC_AT, NO_TIMESTAMP, iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import LZ4, NO_COMPRESSION, ZSTD, expanding
from ottla.protocol.records.record import NewRecord, iter_records
from ottla.protocol.work import BYTES_A_TURN, Turn, Work

_ENTRY = Struct(">qi")
_MESSAGE = Struct(">Ibb")
_INT64, _INT32 = Struct(">q"), Struct(">i")
#: The part of a message that the checksum covers, from the magic byte on, without key and value.
_HEAD = (Struct(">bb"), Struct(">bbq"))
_CRC_AT, _MAGIC_AT = 12, 16
_CODEC_MASK = 0x07
#: The smallest size field: that of magic 0 without a key and a value.
_SIZE_MIN = 14
#: A header byte of lz4 frames, which clients of magic 0 computed over other bytes (KAFKA-3160).
_LZ4_DESCRIPTOR_AT, _LZ4_CONTENT_SIZE = 4, 0x08


class SetMessage(NamedTuple):
    """A message of a set. `codec`: the value is a message set, if it is not none."""

    magic: int
    codec: int
    timestamp: int
    key: bytes | None
    value: memoryview | None


def is_message_set(records: Buffer) -> bool:
    """Return True if bytes begin as a message set does, and not as a batch."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] in (0, 1)


def batch_of(records: memoryview, turn: Turn, max_bytes: int) -> Work[bytes]:
    """Return a message set as one batch, with the codec of its first wrapper. The bytes must not change before the work is done.

    Raises:
        KafkaError: CORRUPT_MESSAGE for a checksum or a length that is wrong, INVALID_RECORD for another magic, a set without a message,
            a wrapper in a wrapper, zstd, or for more than `max_bytes` of messages.
    """
    rows: list[NewRecord] = []
    codec, size = NO_COMPRESSION, 0
    for message in _messages(records):
        inner: Iterator[SetMessage] = iter((message,))
        if message.codec != NO_COMPRESSION:
            codec = codec or message.codec
            payload = yield from _unwrapped(message, turn, max_bytes - size)
            inner = _messages(memoryview(payload))
        for each in inner:
            if each.magic != message.magic or (each is not message and each.codec != NO_COMPRESSION):
                raise _invalid("a message of another format is in a compressed one")
            size += len(each.value or b"") + len(each.key or b"") + _CRC_AT + _SIZE_MIN
            if size > max_bytes:
                raise _invalid(f"messages of more than {max_bytes} bytes")
            rows.append(NewRecord(each.key, None if each.value is None else bytes(each.value), each.timestamp))
            if turn.spend(1):
                yield None
    if not rows:
        raise _invalid("a message set without a message")
    build = partial(build_batch, rows, compression=codec)
    return build() if size <= BYTES_A_TURN else cast(bytes, (yield build))


def _unwrapped(message: SetMessage, turn: Turn, max_bytes: int) -> Work[bytes]:
    if message.value is None or message.codec >= ZSTD:
        raise _invalid(f"a message with codec {message.codec} and {'no' if message.value is None else 'a'} value")
    payload = message.value
    if message.codec == LZ4 and message.magic == 0:
        payload = memoryview(_with_checksum(payload))
    return (yield from expanding(message.codec, payload, turn, max_bytes))


def _messages(records: memoryview) -> Iterator[SetMessage]:
    """Yield the messages of a set. Raises KafkaError as `batch_of`."""
    pos, end = 0, len(records)
    while pos < end:
        try:
            _, size = _ENTRY.unpack_from(records, pos)
            stop = pos + _CRC_AT + size
            if size < _SIZE_MIN or stop > end:
                raise _corrupt(f"a message of {size} bytes where {end - pos - _CRC_AT} are left")
            crc, magic, attributes = _MESSAGE.unpack_from(records, pos + _CRC_AT)
            if magic not in (0, 1):
                raise _invalid(f"a message has magic {magic}")
            if crc32(records[pos + _MAGIC_AT : stop]) != crc:
                raise _corrupt(f"the checksum {crc:#x} of a message is not that of its bytes")
            at, timestamp = pos + _MAGIC_AT + 2, NO_TIMESTAMP
            if magic:
                (timestamp,) = _INT64.unpack_from(records, at)
                at += 8
            key, at = _bytes(records, at, stop)
            value, at = _bytes(records, at, stop)
        except struct_error:
            raise _corrupt("a message is cut short") from None
        if at != stop:
            raise _corrupt(f"{stop - at} bytes are left at the end of a message")
        yield SetMessage(magic, attributes & _CODEC_MASK, timestamp, None if key is None else bytes(key), value)
        pos = stop


def _bytes(records: memoryview, pos: int, stop: int) -> tuple[memoryview | None, int]:
    (size,) = _INT32.unpack_from(records, pos)
    pos += 4
    if size < 0:
        return None, pos
    if size > stop - pos:
        raise _corrupt(f"a field of {size} bytes where {stop - pos} are left")
    return records[pos : pos + size], pos + size


def messages_of(records: Buffer, offset: int, magic: int, turn: Turn, max_bytes: int) -> Work[tuple[bytes, int]]:
    """Return the records of batches from an offset on as messages of a magic, and the offset that follows the last of these
    batches.

    There are at most `max_bytes`, and at least one message if the batches have one: the client asks again for the rest.

    Raises:
        KafkaError: a batch is damaged, or UNSUPPORTED_COMPRESSION_TYPE as Kafka answers where a batch is in zstd (KIP-110).
    """
    parts: list[bytes] = []
    size, following = 0, offset
    for batch in iter_batches(records):
        if batch.is_control:
            following = batch.next_offset
            continue
        if batch.compression == ZSTD:
            if parts:
                break
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if batch.count:
            payload = yield from batch.expanded(turn)
            for record in iter_records(
                payload, batch.count, batch.base_offset, batch.base_timestamp, batch.append_time
            ):
                if record.offset < offset:
                    continue
                message = encode_message(
                    record.offset, magic, record.timestamp, batch.timestamp_type, record.key, record.value
                )
                if parts and size + len(message) > max_bytes:
                    return b"".join(parts), record.offset
                parts.append(message)
                size += len(message)
                if turn.spend(1):
                    yield None
        following = batch.next_offset
    return b"".join(parts), following


def encode_message(
    offset: int, magic: int, timestamp: int, timestamp_type: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return one message without a codec."""
    attributes = timestamp_type << 3 if magic else 0
    head = _HEAD[magic].pack(magic, attributes, *((timestamp,) if magic else ()))
    covered = head + _field(key) + _field(value)
    return _ENTRY.pack(offset, 4 + len(covered)) + crc32(covered).to_bytes(4, "big") + covered


def _field(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT32.pack(len(data)) + data


def _with_checksum(frame: memoryview) -> bytes:
    """Return an lz4 frame with the checksum of its header that the format asks for."""
    fixed = bytearray(frame)
    if len(fixed) > _LZ4_DESCRIPTOR_AT:
        end = _LZ4_DESCRIPTOR_AT + (10 if fixed[_LZ4_DESCRIPTOR_AT] & _LZ4_CONTENT_SIZE else 2)
        if len(fixed) > end:
            fixed[end] = xxh32(bytes(fixed[_LZ4_DESCRIPTOR_AT:end])) >> 8 & 0xFF
    return bytes(fixed)


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes."""
    value, pos = 0x165667B1 + len(data) & 0xFFFF_FFFF, 0
    while len(data) - pos >= 4:
        value = value + int.from_bytes(data[pos : pos + 4], "little") * 0xC2B2AE3D & 0xFFFF_FFFF
        value = (value << 17 | value >> 15) * 0x27D4EB2F & 0xFFFF_FFFF
        pos += 4
    for byte in data[pos:]:
        value = value + byte * 0x165667B1 & 0xFFFF_FFFF
        value = (value << 11 | value >> 21) * 0x9E3779B1 & 0xFFFF_FFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFF_FFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFF_FFFF
    return value ^ value >> 16


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)
