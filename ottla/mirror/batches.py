"""The batches of the source as the target gets them: if possible, the same bytes with another header.

A batch is passed on compressed as it is; only the producer's part of its header and the CRC are new. It is encoded again if a
producer may not send it as it is: it has lost records by compaction, its timestamps are the source broker's (LogAppendTime), it
begins before the position, or it is larger than the target takes. Neighbouring small batches are joined, because a request
carries one batch of each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchView,
    crc32c,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord, Record

#: Smaller batches are joined with their neighbours, up to this many bytes together.
JOINED_BYTES = 256 * 1024
#: A larger batch is never joined: its decoding would take more time than a request.
SMALL_BYTES = 32 * 1024
#: The most bytes of a record besides its key, value and headers, and of a batch's header.
RECORD_OVERHEAD_BYTES = 48
_CRC = Struct(">I")


class TooLargeRecord(Exception):
    """The target takes no batch that holds this record."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(offset, size)
        self.offset, self.size = offset, size


class Stamp(NamedTuple):
    """The producer's part of a batch's header."""

    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool


class Outgoing:
    """A batch for the target. `first` and `last` are the source's offsets of its first and last record."""

    __slots__ = ("_records", "_view", "compression", "count", "first", "last", "size")

    def __init__(self, view: BatchView | None, records: Sequence[Record], compression: int) -> None:
        """Take a batch as it is, or records that are to be encoded again."""
        self._view, self._records, self.compression = view, records, compression
        if view is not None:
            self.first, self.last, self.count, self.size = view.base_offset, view.last_offset, view.count, view.size
        else:
            self.first, self.last, self.count = records[0].offset, records[-1].offset, len(records)
            self.size = HEADER_BYTES + sum(map(record_size, records))

    def source_offset(self, index: int) -> int:
        """Return the source's offset of the record with this number in the batch."""
        return self.first + index if self._view is not None else self._records[index].offset

    def encoded(self, stamp: Stamp) -> bytes | bytearray:
        """Return the bytes of the batch with the producer's part of its header."""
        if self._view is not None:
            return _restamped(self._view, stamp)
        made = build_batch(
            [NewRecord(row.key, row.value, row.timestamp, row.headers) for row in self._records],
            compression=self.compression,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            base_sequence=stamp.sequence,
            transactional=stamp.transactional,
        )
        self.size = len(made)
        return made


def outgoing(batches: Sequence[BatchView], position: int, batch_bytes_max: int | None = None) -> list[Outgoing]:
    """Return the batches for the target, from batches that were fetched at `position`. None is larger than `batch_bytes_max`.

    Raises:
        TooLargeRecord: a single record is larger.
        KafkaError: a batch that has to be encoded again cannot be decoded.
    """
    limit = batch_bytes_max or (1 << 62)
    made: list[Outgoing] = []
    joined: list[Record] = []
    size = codec = 0
    for batch, alone in _with_neighbours(batches):
        if alone and batch.base_offset >= position and batch.size <= limit and can_pass(batch):
            made += _parts(joined, codec, limit)
            joined, size = [], 0
            made.append(Outgoing(batch, (), batch.compression))
            continue
        if joined and (batch.compression != codec or size + batch.size > JOINED_BYTES):
            made += _parts(joined, codec, limit)
            joined, size = [], 0
        codec = batch.compression
        size += batch.size
        joined += [row for row in batch.iter_records() if row.offset >= position]
    return [*made, *_parts(joined, codec, limit)]


def can_pass(batch: BatchView) -> bool:
    """Return whether a producer may send the batch as it is."""
    kept = not batch.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    return kept and batch.count == batch.last_offset_delta + 1


def record_size(row: Record) -> int:
    """Return an upper bound of a record's bytes."""
    headers = sum(len(name) + len(value or b"") + 10 for name, value in row.headers)
    return RECORD_OVERHEAD_BYTES + len(row.key or b"") + len(row.value or b"") + headers


def _with_neighbours(batches: Sequence[BatchView]) -> Iterator[tuple[BatchView, bool]]:
    """Yield each batch, and whether it is sent alone: because it is large, or no neighbour is small enough."""
    small = [batch.size < SMALL_BYTES for batch in batches]
    for index, batch in enumerate(batches):
        beside = (index > 0 and small[index - 1]) or (index + 1 < len(batches) and small[index + 1])
        yield batch, not (small[index] and beside)


def _parts(records: list[Record], codec: int, limit: int) -> Iterable[Outgoing]:
    """Yield batches of the records. Even without compression each is within the limit."""
    part: list[Record] = []
    size = HEADER_BYTES
    for row in records:
        more = record_size(row)
        if part and size + more > limit:
            yield Outgoing(None, part, codec)
            part, size = [], HEADER_BYTES
        if HEADER_BYTES + more - RECORD_OVERHEAD_BYTES > limit:
            raise TooLargeRecord(row.offset, HEADER_BYTES + more)
        part.append(row)
        size += more
    if part:
        yield Outgoing(None, part, codec)


def _restamped(batch: BatchView, stamp: Stamp) -> bytearray:
    """Return the batch as one of the producer: offsets from 0 on, the producer's id, epoch and sequence, and a new CRC."""
    made = bytearray(batch.buffer)
    attributes = batch.attributes & CODEC_MASK | (TRANSACTIONAL_BIT if stamp.transactional else 0)
    HEADER.pack_into(
        made,
        0,
        0,
        len(made) - LOG_OVERHEAD_BYTES,
        -1,
        MAGIC,
        0,
        attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        stamp.producer_id,
        stamp.producer_epoch,
        stamp.sequence,
        batch.count,
    )
    with memoryview(made) as view, view[ATTRIBUTES_AT:] as covered:
        crc = crc32c(covered)
    _CRC.pack_into(made, CRC_AT, crc)
    return made
