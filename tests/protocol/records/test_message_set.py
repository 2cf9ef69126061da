"""Message sets compared with kafka-python's own classes, in both directions, and malformed ones."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODECS, GZIP, LZ4, NO_COMPRESSION, ZSTD
from ottla.protocol.records.message_set import batch_of, encode_message, is_message_set, messages_of, xxh32
from ottla.protocol.records.record import NewRecord
from ottla.protocol.work import Turn, do_now

TIME = 1_600_000_000_000
ROWS = [(b"k", b"v" * 100, TIME), (None, b"", TIME + 5), (b"", None, TIME - 5), (b"x" * 300, bytes(256), TIME)]
OLD_CODECS = [number for number in range(len(CODECS)) if number != ZSTD]
MAX = 1 << 20


def message_set(magic: int, codec: int = 0, rows: list[tuple[bytes | None, bytes | None, int]] = ROWS) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (key, value, timestamp) in enumerate(rows):
        assert builder.append(offset, timestamp if magic else None, key, value) is not None
    return bytes(builder.build())


def batch(records: bytes, max_bytes: int = MAX) -> BatchView:
    data = do_now(batch_of(memoryview(records), Turn(), max_bytes))
    check_batch(memoryview(data), 0, len(data))
    return BatchView(memoryview(data))


def messages(records: bytes, offset: int, magic: int, max_bytes: int = MAX) -> tuple[bytes, int]:
    return do_now(messages_of(records, offset, magic, Turn(), max_bytes))


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_kafka_python_becomes_one_batch(magic: int, codec: int) -> None:
    records = message_set(magic, codec)
    assert is_message_set(records)
    made = batch(records)
    assert made.compression == codec
    expected = [(i, row[2] if magic else -1, row[0], row[1]) for i, row in enumerate(ROWS)]
    assert [tuple(record[:4]) for record in made.records()] == expected


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_kafka_python_reads_the_messages_of_batches(magic: int, codec: int) -> None:
    rows = [NewRecord(*row, headers=[("h", b"1")]) for row in ROWS]
    batches = b"".join(build_batch(rows, base_offset=base, compression=codec) for base in (10, 14))
    read, following = messages(batches, 12, magic)
    assert following == 18
    found = [record for part in _parts(read) for record in part]
    assert [(record.offset, record.key, record.value) for record in found] == [
        (offset, *ROWS[(offset - 10) % 4][:2]) for offset in range(12, 18)
    ]
    if magic:
        assert [record.timestamp for record in found] == [ROWS[(offset - 10) % 4][2] for offset in range(12, 18)]
        assert {record.timestamp_type for record in found} == {0}


def _parts(data: bytes) -> list[object]:
    records, parts = MemoryRecords(data), []
    while records.has_next():
        part = records.next_batch()
        assert part.validate_crc()
        parts.append(part)
    return parts


def test_the_time_of_the_broker_is_named_as_such() -> None:
    (only,) = _parts(messages(build_batch([NewRecord(b"k", b"v", TIME)], timestamp_type=1), 0, 1)[0])
    assert [(record.timestamp_type, record.timestamp) for record in only] == [(1, TIME)]


def test_messages_end_at_the_limit_and_one_is_there_however_small_it_is() -> None:
    data = build_batch([NewRecord(None, b"x" * 100, TIME) for _ in range(5)])
    one = len(encode_message(0, 1, TIME, 0, None, b"x" * 100))
    for limit, count in ((0, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (99 * one, 5)):
        read, following = messages(data, 0, 1, limit)
        assert (len(read), following) == (count * one, count)


def test_control_batches_are_passed_over() -> None:
    marker = build_batch([NewRecord(b"\0\0\0\1", b"\0" * 6, TIME)], base_offset=3, control=True, transactional=True)
    assert messages(marker, 3, 1) == (b"", 4)
    read, following = messages(marker + build_batch([NewRecord(None, b"v", TIME)], base_offset=4), 3, 1)
    assert [record.offset for part in _parts(read) for record in part] == [4]
    assert following == 5


def test_zstd_is_refused_as_kafka_does() -> None:
    """KIP-110: a client of messages cannot read it, and Kafka does not decompress it for him."""
    zstd, plain = (
        build_batch([NewRecord(None, b"v", TIME)], base_offset=i, compression=c) for i, c in ((1, ZSTD), (0, 0))
    )
    with pytest.raises(KafkaError) as refused:
        messages(zstd, 1, 1)
    assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert messages(plain + zstd, 0, 1)[1] == 1, "what lies before it is read"


def test_an_lz4_frame_of_magic_0_has_a_checksum_that_no_reader_accepts_but_kafkas() -> None:
    """KAFKA-3160: the checksum was computed over the frame's magic number, too."""
    records = bytearray(message_set(0, LZ4))
    at = records.index(b"\x04\x22\x4d\x18") + 6
    assert records[at] == xxh32(bytes(records[at - 6 : at])) >> 8 & 0xFF, "kafka-python writes it as those clients did"
    assert [record.value for record in batch(bytes(records)).records()] == [row[1] for row in ROWS]


def sealed(magic: int, attributes: int, rest: bytes) -> bytes:
    covered = struct.pack(">bb", magic, attributes) + rest
    return struct.pack(">qiI", 0, 4 + len(covered), crc32(covered)) + covered


PLAIN = message_set(1)
NULL = b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (PLAIN[:-1], ErrorCode.CORRUPT_MESSAGE),
        (PLAIN[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (PLAIN + b"\0" * 11, ErrorCode.CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, -1) + PLAIN[12:], ErrorCode.CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, 2**31 - 1) + PLAIN[12:], ErrorCode.CORRUPT_MESSAGE),
        (struct.pack(">qi", 0, 14) + PLAIN[12:], ErrorCode.CORRUPT_MESSAGE),
        (sealed(0, 0, b"\0\0\0\x09" + b"k" * 4 + NULL), ErrorCode.CORRUPT_MESSAGE),
        (sealed(0, 0, NULL + NULL + b"!"), ErrorCode.CORRUPT_MESSAGE),
        (sealed(1, 0, NULL + NULL), ErrorCode.CORRUPT_MESSAGE),
        (sealed(0, GZIP, NULL + NULL), ErrorCode.INVALID_RECORD),
        (sealed(0, GZIP, NULL + b"\0\0\0\1!"), ErrorCode.CORRUPT_MESSAGE),
        (sealed(1, ZSTD, struct.pack(">q", 0) + NULL + b"\0\0\0\0"), ErrorCode.INVALID_RECORD),
        (sealed(0, 7, NULL + b"\0\0\0\0"), ErrorCode.INVALID_RECORD),
        (PLAIN + build_batch([NewRecord(None, b"v", 0)]), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ],
)  # fmt: skip
def test_a_damaged_set_is_refused(records: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        batch(records)
    assert refused.value.code == code


def test_a_wrapper_in_a_wrapper_and_one_of_another_magic_are_refused() -> None:
    for inner in (message_set(1, GZIP), message_set(0)):
        data = CODECS[GZIP].compress(inner, 1)
        value = struct.pack(">i", len(data)) + data
        with pytest.raises(KafkaError, match="of another format"):
            batch(sealed(1, GZIP, struct.pack(">q", 0) + NULL + value))


@pytest.mark.parametrize("codec", [NO_COMPRESSION, GZIP])
def test_a_set_that_grows_beyond_its_limit_is_refused(codec: int) -> None:
    records = message_set(1, codec, [(None, bytes(1000), TIME)] * 50)
    assert batch(records, 60_000).count == 50
    with pytest.raises(KafkaError):
        batch(records, 40_000)


def test_many_messages_are_converted_in_turns() -> None:
    records = message_set(1, 0, [(None, b"", TIME)] * 5000)
    steps = list(batch_of(memoryview(records), Turn(), MAX))
    assert len([step for step in steps if step is None]) == 2
