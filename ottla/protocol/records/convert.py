"""Recompression of a produced batch with its topic's codec. (Timestamps are patched in place: `validate.restamp`.)

The payload is decompressed and compressed again as a whole, so the records' bytes do not change. Kafka decodes and
re-encodes each record, with the same result for valid ones.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CODEC_MASK, HEADER_BYTES, BatchView
from ottla.protocol.records.builder import pack_batch
from ottla.protocol.records.compression import CODEC_IDS, NO_COMPRESSION
from ottla.protocol.work import BYTES_A_TURN, Turn, Work

#: The largest value of the length field, a signed int32.
BATCH_BYTES_MAX = 2**31 - 1

# compression.type: the codec to store with, None to keep what the producer chose.
TARGET_CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": NO_COMPRESSION,
    "gzip": CODEC_IDS["gzip"],
    "snappy": CODEC_IDS["snappy"],
    "lz4": CODEC_IDS["lz4"],
    "zstd": CODEC_IDS["zstd"],
}


def recompressing(
    batch: BatchView,
    codec: int,
    level: int | None,
    turn: Turn,
    *,
    payload: bytes | None = None,
    max_bytes: int | None = None,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> Work[bytes]:
    """Recompresses as `recompress` does; large batches are handled on a worker. `payload` are the records if they are decompressed already.

    Raises:
        KafkaError: INVALID_RECORD, or MESSAGE_TOO_LARGE for a result of over `batch_bytes_max`.
    """
    if payload is None:
        try:
            payload = yield from batch.expanded(turn, max_bytes)
        except KafkaError as fault:
            # CORRUPT_MESSAGE is retriable: the producer would send the same bytes again until delivery.timeout.ms.
            raise KafkaError(ErrorCode.INVALID_RECORD, fault.message) from None
    if codec == NO_COMPRESSION:
        _check_size(HEADER_BYTES + len(payload), batch_bytes_max)
    pack = partial(
        pack_batch,
        payload,
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        attributes=batch.attributes & ~CODEC_MASK,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=batch.count,
        compression=codec,
        level=level,
    )
    if len(payload) > BYTES_A_TURN:
        packed = cast(bytes, (yield pack))
    else:
        packed = pack()
        if turn.spend_bytes(len(payload)):
            yield None
    _check_size(len(packed), batch_bytes_max)
    return packed


def _check_size(size: int, batch_bytes_max: int) -> None:
    if size > batch_bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes after compression, max.message.bytes is {batch_bytes_max}"
        )
