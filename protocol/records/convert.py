"""Rewriting a produced batch for its topic: another codec. (Timestamps are patched in place: `validate.restamp`.)

The records inside are not touched: the payload is decompressed and compressed again as a whole, so whatever a client
put into them is still there. Kafka decodes and re-encodes each record, with the same outcome for valid ones.
"""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import CODEC_MASK, HEADER_BYTES, BatchView
from protocol.records.builder import pack_batch
from protocol.records.compression import CODEC_IDS, NONE, decompress

# compression.type: the codec to store with, None to keep what the producer chose.
TARGET_CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": NONE,
    "gzip": CODEC_IDS["gzip"],
    "snappy": CODEC_IDS["snappy"],
    "lz4": CODEC_IDS["lz4"],
    "zstd": CODEC_IDS["zstd"],
}


def recompress(batch: memoryview, codec: int, level: int | None = None, *, max_bytes: int | None = None) -> bytes:
    """The batch with its records stored by `codec`. INVALID_RECORD when they cannot be read."""
    view = BatchView(batch)
    try:
        payload = decompress(view.compression, batch[HEADER_BYTES : view.size], max_bytes)
    except KafkaError as fault:
        # CORRUPT_MESSAGE is retriable, and the producer would send the same bytes for ever.
        raise KafkaError(ErrorCode.INVALID_RECORD, fault.message) from None
    return pack_batch(
        payload,
        base_offset=view.base_offset,
        leader_epoch=view.partition_leader_epoch,
        attributes=view.attributes & ~CODEC_MASK,
        last_offset_delta=view.last_offset_delta,
        base_timestamp=view.base_timestamp,
        max_timestamp=view.max_timestamp,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        base_sequence=view.base_sequence,
        count=view.count,
        compression=codec,
        level=level,
    )
