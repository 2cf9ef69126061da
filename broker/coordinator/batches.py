"""Record batches for an internal topic, from the records a shard decided on.

Uncompressed, as Kafka writes them by default (offsets.topic.compression.codec): most hold one small record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.coordinator.outcome import CoordinatorRecord
from broker.coordinator.shard import RecordCodec
from protocol.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC
from protocol.records.crc import crc32c
from protocol.records.record import encode_record

# Kept free in a batch that is cut by size: its header.
_OVERHEAD_BYTES = HEADER_BYTES


def build(
    codec: RecordCodec, records: Sequence[CoordinatorRecord], now_ms: int, bytes_max: int | None
) -> Iterator[tuple[bytes, Sequence[CoordinatorRecord]]]:
    """Batches and the records in each: one batch, or as many as `bytes_max` asks for."""
    pieces: list[bytes] = []
    size, start = _OVERHEAD_BYTES, 0
    for index, (key, value) in enumerate(records):
        encoded = encode_record(index - start, 0, *codec.encode(key, value))
        if bytes_max is not None and pieces and size + len(encoded) > bytes_max:
            yield _batch(pieces, now_ms), records[start:index]
            pieces, size, start = [], _OVERHEAD_BYTES, index
            encoded = encode_record(0, 0, *codec.encode(key, value))
        pieces.append(encoded)
        size += len(encoded)
    yield _batch(pieces, now_ms), records[start:] if start else records


def _batch(pieces: list[bytes], now_ms: int) -> bytes:
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    count = len(pieces)
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    header = HEADER.pack(0, length, -1, MAGIC, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    crc = crc32c(header[21:] + body)
    return b"".join((header[:17], crc.to_bytes(4, "big"), header[21:], body))
