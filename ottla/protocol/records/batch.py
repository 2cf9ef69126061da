"""The 61-byte header of a record batch v2: read it, walk over batches, change it in place.

Layout (big endian), with the byte where each field starts:

     0 base_offset            i64    outside the CRC, so the leader sets both
     8 length                 i32    bytes that follow this field: size - 12
    12 partition_leader_epoch i32    outside the CRC too
    16 magic                  i8     2
    17 crc                    u32    CRC-32C of bytes 21 to the end
    21 attributes             i16    0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23 last_offset_delta      i32    last_offset - base_offset; compaction keeps it even when it drops the last record
    27 base_timestamp         i64    of the first record, or the delete horizon when bit 6 is set (KIP-534)
    35 max_timestamp          i64
    43 producer_id            i64
    51 producer_epoch         i16
    53 base_sequence          i32
    57 count                  i32
    61 records                       compressed as a whole when a codec is set

The hot path (`validate.validate_header`) works on the plain tuple of HEADER; BatchView is for all other readers.
Whether a broker may accept a batch is decided in `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from fastcrc.crc32 import iscsi

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.compression import NO_COMPRESSION, decompress, expanding
from ottla.protocol.records.record import Record, iter_records
from ottla.protocol.work import Turn, Work

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
# The fields base_offset and length, which the length field does not count.
LOG_OVERHEAD_BYTES = 12
BATCH_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC = 2
PARTITION_LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
# All flags lie in the low byte of the two.
ATTRIBUTES_LOW_AT = ATTRIBUTES_AT + 1
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
COUNT_AT = 57
assert HEADER.size == HEADER_BYTES

# The fields of HEADER in order; what `validate_header` and `check_batch` return. It stays a plain tuple: a NamedTuple, tried, made
# a follower's append of one small batch 17 % slower.
Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
# The index of each field in a Header.
(
    BASE_OFFSET,
    LENGTH,
    PARTITION_LEADER_EPOCH,
    _MAGIC,
    CRC,
    ATTRIBUTES,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    COUNT,
) = range(13)

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CREATE_TIME = 0
LOG_APPEND_TIME = 1

#: CRC-32C, which the catalogue of checksums calls CRC-32/ISCSI. `fastcrc` has wheels for all platforms of docs/INSTALL.md, and takes
#: 0.04 ms for a megabyte where the package `crc32c` takes 0.18. No function around it: each append calls it.
crc32c = iscsi

_PREFIX = Struct(">qi")
_CRC_ATTRIBUTES = Struct(">Ih")
_ATTRIBUTES = Struct(">h")
_INT64 = Struct(">q")
_CRC = Struct(">I")


class BatchView:
    """The header of one batch by name, and its bytes. The numbers are read once: a later patch does not show here."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    buffer: memoryview
    count: int
    crc: int
    last_offset_delta: int
    length: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int

    def __init__(self, buf: memoryview, pos: int = 0) -> None:
        (
            self.base_offset,
            self.length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buf, pos)
        self.buffer = buf[pos : pos + LOG_OVERHEAD_BYTES + self.length]

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """The time from which tombstones and markers of this batch may be deleted (KIP-534), or None if it is not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def payload(self) -> memoryview:
        """The records as they are stored, possibly compressed."""
        return self.buffer[HEADER_BYTES:]

    def records(self, *, max_bytes: int | None = None) -> list[Record]:
        """Decode every record; raise KafkaError(INVALID_RECORD or CORRUPT_MESSAGE) if one is malformed."""
        return list(self.iter_records(max_bytes=max_bytes))

    def iter_records(self, *, max_bytes: int | None = None) -> Iterator[Record]:
        """Decode the records one by one: beside the decompressed payload, one record is in memory at a time."""
        if self.count == 0:
            return iter(())
        payload = self.expand(max_bytes)
        return iter_records(payload, self.count, self.base_offset, self.base_timestamp, self.append_time)

    def expand(self, max_bytes: int | None = None) -> bytes:
        """Return the records' bytes, decompressed. Raises KafkaError as `decompress` does."""
        codec = self.attributes & CODEC_MASK
        return bytes(self.payload) if codec == NO_COMPRESSION else decompress(codec, self.payload, max_bytes)

    @property
    def append_time(self) -> int | None:
        """The timestamp of every record, where the broker gave it (LogAppendTime)."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else None

    def expanded(self, turn: Turn, max_bytes: int | None = None) -> Work[bytes]:
        """Return the records' bytes, decompressed; large batches are decompressed on a worker. The batch's buffer may be invalid after a yield."""
        return expanding(self.attributes & CODEC_MASK, self.payload, turn, max_bytes)

    def check_crc(self) -> None:
        """Raise CORRUPT_MESSAGE if the CRC is not that of the contents."""
        found = crc32c(self.buffer[ATTRIBUTES_AT:])
        if found != self.crc:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"record batch at offset {self.base_offset}: crc is {self.crc:#x}, contents give {found:#x}",
            )

    def __repr__(self) -> str:
        return f"BatchView(offsets=[{self.base_offset}, {self.last_offset}], count={self.count}, size={self.size})"


def iter_batches(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[BatchView]:
    """Yield views of the complete batches in buf[pos:end]. A partial one at the end is left out, as a fetch may cut there.

    Raises CORRUPT_MESSAGE where no batch can start. The CRC is not checked: see `check_batch`.
    """
    view = memoryview(buf)
    stop = len(view) if end is None else end
    while (size := batch_size(view, pos, stop)) is not None:
        yield BatchView(view, pos)
        pos += size


def batch_size(buf: Buffer, pos: int, end: int) -> int | None:
    """Return the size of the batch at `pos`, or None if it is partial. Raises CORRUPT_MESSAGE if no batch can start there."""
    if end - pos <= MAGIC_AT:
        return None
    _, length = _PREFIX.unpack_from(buf, pos)
    magic = buf[pos + MAGIC_AT]
    if length < BATCH_LENGTH_MIN or magic != MAGIC:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"no record batch v2 at byte {pos}: length field {length}, magic {magic}"
        )
    size: int = length + LOG_OVERHEAD_BYTES
    return size if size <= end - pos else None


def complete_batch(buf: memoryview, pos: int, end: int) -> Header | None:
    """Return the header of the batch at `pos`, or None if it is partial; raise CORRUPT_MESSAGE if its CRC is wrong, or it is none.

    It checks bytes that a broker already accepted: in recovery, replication and raft.
    """
    if end - pos < HEADER_BYTES:
        batch_size(buf, pos, end)  # raises if no batch can start there
        return None
    header: Header = HEADER.unpack_from(buf, pos)
    _, length, _, magic, crc, _, _, _, _, _, _, _, _ = header
    stop = pos + length + LOG_OVERHEAD_BYTES
    if magic != MAGIC or length < BATCH_LENGTH_MIN or stop > end:
        batch_size(buf, pos, end)
        return None
    found = crc32c(buf[pos + ATTRIBUTES_AT : stop])
    if found != crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch at byte {pos}: crc is {crc:#x}, contents give {found:#x}"
        )
    return header


def check_batch(buf: memoryview, pos: int, end: int) -> Header:
    """Return the header of the batch at `pos`; raise CORRUPT_MESSAGE if the batch is partial or its CRC is wrong."""
    header = complete_batch(buf, pos, end)
    if header is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch at byte {pos} is cut short at byte {end}")
    return header


def patch_timestamp(buf: bytearray | memoryview, pos: int, timestamp_type: int, max_timestamp: int) -> None:
    """Set the timestamp type and the max timestamp of the batch at `pos`, and recomputes its CRC."""
    _, length = _PREFIX.unpack_from(buf, pos)
    _, attributes = _CRC_ATTRIBUTES.unpack_from(buf, pos + CRC_AT)
    attributes &= ~LOG_APPEND_TIME_BIT
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    end = pos + LOG_OVERHEAD_BYTES + length
    with memoryview(buf) as view, view[pos + ATTRIBUTES_AT : end] as covered:
        _CRC.pack_into(buf, pos + CRC_AT, crc32c(covered))
