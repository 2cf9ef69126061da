"""The frame of the records in the coordinators' internal topics, and the records of `__share_group_state` and `__transaction_state`.

Key: record type as int16, then the key's fields (always version 0). Value: version as int16, then the fields. A record
without a value deletes its key. The types and classes of a topic are a table beside its declarations; those of
`__consumer_offsets` are in group_records.py.

`__share_group_state` has whole states of share partitions, and updates (KIP-932). v1 of the value in `__transaction_state` came
with transaction.version 1 (KIP-890).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla.protocol.compile import decode, encoder
from ottla.protocol.errors import MalformedMessage, ProtocolError
from ottla.protocol.messages.shared_structs import StateBatch
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.schema import ZERO_UUID, info_of, int8, int16, int32, int64, message, struct, uuid, v

RecordTypes: TypeAlias = dict[int, tuple[type[object], type[object]]]


class UnknownRecord(ProtocolError):
    """A record was written by a newer coordinator. Kafka skips unknown types and fails to load on unknown versions."""


def encode_key(key: Any) -> bytes:
    """Return the bytes of a record's key."""
    pieces: Pieces = [key.__message__.key.to_bytes(2, "big")]
    encoder(key.__plain__, 0)(key, pieces)
    return b"".join(pieces)


def encode_value(value: Any, version: int) -> bytes:
    """Return the bytes of a record's value."""
    pieces: Pieces = [version.to_bytes(2, "big")]
    encoder(value.__plain__, version)(value, pieces)
    return b"".join(pieces)


def decode_key(types: RecordTypes, data: Buffer) -> object:
    """Return the key object of a record; UnknownRecord for types not in the table."""
    record_type = _int16(data)
    classes = types.get(record_type)
    if classes is None:
        raise UnknownRecord(f"unknown record type {record_type}")
    return decode(classes[0], data, 0, 2)


def decode_value(types: RecordTypes, key: Any, data: Buffer) -> object:
    """Return the value object that goes with a key object."""
    version = _int16(data)
    cls = types[key.__message__.key][1]
    if version not in info_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} v{version}")
    return decode(cls, data, version, 2)


def _int16(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedMessage("coordinator record: cut short")
    return int.from_bytes(data[:2], "big", signed=True)


@message(key=0, versions="0", flexible="none")
class ShareSnapshotKey:
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v(tag=0, default=-1)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = v(default=[])


@message(key=1, versions="0", flexible="none")
class ShareUpdateKey:
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v(tag=0, default=-1)
    state_batches: list[StateBatch] = v(default=[])


SHARE_RECORDS: RecordTypes = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}


@message(key=0, versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: str = ""


@struct
class PartitionsSchema:
    topic: str = ""
    partition_ids: list[int32] = v(default=[])


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int64 = 0
    previous_producer_id: int64 = v("1+", tag=0, default=-1)
    next_producer_id: int64 = v("1+", tag=1, default=-1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = v("1+", tag=3, default=-1)
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = v(default=[])
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = v("1+", tag=2, default=0)


TRANSACTION_RECORDS: RecordTypes = {
    0: (TransactionLogKey, TransactionLogValue),
}
