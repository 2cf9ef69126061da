"""Record batches for an internal topic, from the records a shard decided on.

Uncompressed, as Kafka writes them by default (offsets.topic.compression.codec): most hold one small record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.broker.coordinator.outcome import CoordinatorRecord, Producer
from ottla.broker.coordinator.shard import RecordCodec
from ottla.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT
from ottla.protocol.records.builder import pack_batch
from ottla.protocol.records.record import encode_record


def build(
    codec: RecordCodec,
    records: Sequence[CoordinatorRecord],
    now_ms: int,
    bytes_max: int | None,
    producer: Producer | None = None,
) -> Iterator[tuple[bytes, Sequence[CoordinatorRecord]]]:
    """Yield batches with their records: one batch, or as many as `bytes_max` requires."""
    pieces: list[bytes] = []
    size, start = HEADER_BYTES, 0
    for index, (key, value) in enumerate(records):
        encoded = encode_record(index - start, 0, *codec.encode(key, value))
        if bytes_max is not None and pieces and size + len(encoded) > bytes_max:
            yield _batch(pieces, now_ms, producer), records[start:index]
            pieces, size, start = [], HEADER_BYTES, index
            encoded = encode_record(0, 0, *codec.encode(key, value))
        pieces.append(encoded)
        size += len(encoded)
    yield _batch(pieces, now_ms, producer), records[start:] if start else records


def _batch(pieces: list[bytes], now_ms: int, producer: Producer | None) -> bytes:
    return pack_batch(
        b"".join(pieces),
        base_offset=0,
        leader_epoch=-1,
        attributes=0 if producer is None else TRANSACTIONAL_BIT,
        last_offset_delta=len(pieces) - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=-1 if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        # A coordinator's sequences are not checked; Kafka writes 0.
        base_sequence=-1 if producer is None else 0,
        count=len(pieces),
    )
