"""Record batches v2 made from records, or from another batch: for our own topics, the command line, recompression and compaction.

Offsets are consecutive from the base offset, except in `rebuild_batch`, which keeps those the survivors had. A record's key chooses
its partition: `partition_for_key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchView,
    crc32c,
)
from ottla.protocol.records.compression import NO_COMPRESSION, compress
from ottla.protocol.records.record import NewRecord, Record, RecordHeaders, encode_record
from ottla.protocol.records.validate import RecordRules, check_records, read_frames
from ottla.protocol.work import BYTES_A_TURN, RELEASE, TooLong, Turn, Work, do_at_once, do_now

_CRC_BYTES = 4
# MurmurHash2 with Kafka's seed.
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def build_batch(
    records: Iterable[
        NewRecord | tuple[bytes | None, bytes | None, int] | tuple[bytes | None, bytes | None, int, RecordHeaders]
    ],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    compression: int = NO_COMPRESSION,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return one batch of (key, value, timestamp[, headers]) rows; at least one row."""
    parts: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for delta, row in enumerate(records):
        timestamp = row[2]
        if not delta:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        parts.append(encode_record(delta, timestamp - base_timestamp, row[0], row[1], row[3] if len(row) > 3 else ()))
    assert parts, "a batch needs a record"
    return pack_batch(
        b"".join(parts),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=_attributes(timestamp_type, transactional, control),
        last_offset_delta=len(parts) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(parts),
        compression=compression,
        level=level,
    )


def rebuild_batch(
    batch: BatchView,
    survivors: Sequence[Record],
    *,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return `batch` with only the survivors of compaction: offset range, producer and sequence stay the same.

    Without survivors it returns an empty batch, which preserves the producer's last sequence number.
    """
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    append_time = bool(attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = survivors[0].timestamp if survivors else NO_TIMESTAMP
    horizon = batch.delete_horizon if delete_horizon_ms is None else delete_horizon_ms
    if horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
    max_timestamp = batch.max_timestamp
    if survivors and not append_time:
        max_timestamp = max(record.timestamp for record in survivors)
    return pack_in_place_of(
        batch,
        b"".join(
            encode_record(record.offset - batch.base_offset, record.timestamp - base_timestamp, *record[2:])
            for record in survivors
        ),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=len(survivors),
        # Kafka writes an emptied batch without a codec: there is nothing to decompress.
        compression=batch.compression if survivors else NO_COMPRESSION,
    )


def pack_in_place_of(
    batch: BatchView,
    payload: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    compression: int,
    level: int | None = None,
) -> bytes:
    """Return a batch with the offset range, the leader epoch, the producer and the sequence of another one."""
    return pack_batch(
        payload,
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=count,
        compression=compression,
        level=level,
    )


def pack_batch(
    payload: bytes,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
    compression: int = NO_COMPRESSION,
    level: int | None = None,
) -> bytes:
    """Header and (compressed) payload of encoded records, with the CRC. `attributes` without the codec."""
    if compression:
        payload = compress(compression, payload, level)
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes | compression,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch += payload
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT : CRC_AT + _CRC_BYTES] = crc.to_bytes(_CRC_BYTES, "big")
    return bytes(batch)


def _attributes(timestamp_type: int, transactional: bool, control: bool) -> int:
    return (
        (LOG_APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, by murmur2: the one that Java's, librdkafka's ("murmur2") and kafka-python's producers choose."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, Kafka's seed."""
    tail = len(data) & ~3
    value = _SEED ^ len(data)
    for start in range(0, tail, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        value = (value * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if tail < len(data):
        value = (value ^ int.from_bytes(data[tail:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


class Prepared(NamedTuple):
    """The batch to append, or the error; None: the batch is appended unchanged, and its disk job has been run."""

    rules: RecordRules
    outcome: memoryview | KafkaError | None


def prepare(batch: BatchView, rules: RecordRules, now_ms: int, turn: Turn) -> Work[memoryview]:
    """Return the batch to append if the topic needs its records, or another codec: they are checked, and recompressed.

    A batch of a few bytes can hold millions of records, so this is work in turns (`protocol.work`). `Log.append` prepares batches that
    fit into one turn; for others its caller runs this, and appends with the outcome. The bytes of `batch` must not change before the
    work is done.

    Raises:
        KafkaError: the batch is invalid.
    """
    if not rules.checks(batch.compression):
        data = yield from read_frames(batch, rules, turn)
        if len(data) > BYTES_A_TURN:
            del data
            yield RELEASE
        return batch.buffer
    payload = yield from check_records(batch, rules, now_ms, turn)
    if rules.codec is None or rules.codec == batch.compression:
        return batch.buffer
    return memoryview((yield from recompressing(batch, rules.codec, rules, turn, payload)))


def prepared_batch(view: memoryview, rules: RecordRules, now_ms: int, prepared: Prepared | Turn | None) -> memoryview:
    """Return the batch to append: it is prepared here, if it was not before and the turn is long enough.

    Raises:
        KafkaError: the batch is invalid.
        TooLong: it must be prepared first.
    """
    if prepared is None:
        return do_now(prepare(BatchView(view), rules, now_ms, Turn()))
    if isinstance(prepared, Turn):
        return do_at_once(prepare(BatchView(view), rules, now_ms, prepared))
    if prepared.rules is not rules:
        raise TooLong  # the configuration has changed since the batch was prepared
    if isinstance(prepared.outcome, KafkaError):
        raise prepared.outcome
    assert prepared.outcome is not None, "the codec asks for it, as it did then"
    return prepared.outcome


def recompressing(batch: BatchView, codec: int, rules: RecordRules, turn: Turn, payload: bytes) -> Work[bytes]:
    """Recompress a batch; large ones are handled on a worker. `payload` are its records, decompressed and checked.

    The payload is compressed again as a whole, so the records' bytes do not change. Kafka decodes and
    re-encodes each record, with the same result for valid ones. (Timestamps are patched in place: `validate.restamp`.)

    Raises:
        KafkaError: MESSAGE_TOO_LARGE for a result that is larger than a batch may be.
    """
    if codec == NO_COMPRESSION:
        _check_size(HEADER_BYTES + len(payload), rules.max_message_bytes)
    pack = partial(
        pack_in_place_of,
        batch,
        payload,
        attributes=batch.attributes & ~CODEC_MASK,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        count=batch.count,
        compression=codec,
        level=rules.level,
    )
    if len(payload) > BYTES_A_TURN:
        packed = cast(bytes, (yield pack))
    else:
        packed = pack()
        if turn.spend_bytes(len(payload)):
            yield None
    _check_size(len(packed), rules.max_message_bytes)
    return packed


def _check_size(size: int, batch_bytes_max: int) -> None:
    if size > batch_bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes after compression, max.message.bytes is {batch_bytes_max}"
        )
