"""Noise that replaces keys, values and headers of records: it has the same length, and equal bytes get equal noise.

Equal keys stay equal within one recording, so that compaction and the order by key can still be followed. The noise is a hash
with a key that is never written: the original cannot be guessed from it. Batches keep offsets, times, producer, codec, and have
valid CRCs.
"""

from __future__ import annotations

from hashlib import shake_128

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    BatchView,
)
from ottla.protocol.records.builder import pack_in_place_of
from ottla.protocol.records.compression import decompress
from ottla.protocol.records.record import Record, encode_record, iter_records
from ottla.protocol.schema import Records

#: The most bytes that one batch may decompress to: a hostile producer's batch of 1 MB could become 1 GB.
UNPACKED_BYTES_MAX = 64 * 1024 * 1024


class RecordNoise:
    """The noise of one recording."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, data: bytes | None) -> bytes | None:
        """Return noise of the same length. Null stays null, so that a tombstone stays one."""
        return None if data is None else shake_128(self._key + data).digest(len(data))

    def records(self, records: Records | None) -> bytes | None:
        """Return the batches with noise. Unreadable ones are left out: batches of former formats, damaged or partial ones."""
        if records is None:
            return None
        data = memoryview(b"".join(records) if isinstance(records, list) else records)
        out, pos = [], 0
        while len(data) - pos >= HEADER_BYTES:
            batch = BatchView(data, pos)
            if batch.magic != MAGIC or batch.size < HEADER_BYTES or pos + batch.size > len(data):
                break
            pos += batch.size
            try:
                out.append(bytes(batch.buffer) if batch.is_control else self._batch(batch))
            except KafkaError:
                continue
        return b"".join(out)

    def _batch(self, batch: BatchView) -> bytes:
        plain = decompress(batch.compression, batch.payload, UNPACKED_BYTES_MAX)
        records = iter_records(bytes(plain), batch.count, batch.base_offset, batch.base_timestamp)
        return pack_in_place_of(
            batch,
            b"".join(self._record(record, batch) for record in records),
            attributes=batch.attributes & ~CODEC_MASK,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
            count=batch.count,
            compression=batch.compression,
        )

    def _record(self, record: Record, batch: BatchView) -> bytes:
        headers = tuple((name, self.of(value)) for name, value in record.headers)
        return encode_record(
            record.offset - batch.base_offset,
            record.timestamp - batch.base_timestamp,
            self.of(record.key),
            self.of(record.value),
            headers,
        )
