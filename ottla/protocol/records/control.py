"""Control batches: end-of-transaction markers, and the raft log's own records (leader change, voters, snapshot header and footer).

A control record's key is two int16: a version and the type. This file frames them; the values of the raft records are
encoded messages (`protocol.internal_topics.control_messages`) that the caller hands over as bytes.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import NO_LEADER_EPOCH, BatchView
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord, Record


class ControlType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The contents of a transaction marker."""

    committed: bool
    coordinator_epoch: int


_KEY = Struct(">hh")
_KEY_VERSION = 0
_END_TXN = Struct(">hi")
_END_TXN_VERSION = 0


def end_txn_batch(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the marker that ends a producer's transaction in one partition."""
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    row = NewRecord(_KEY.pack(_KEY_VERSION, kind), _END_TXN.pack(_END_TXN_VERSION, coordinator_epoch), timestamp)
    return build_batch(
        [row],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_batch(
    rows: list[tuple[ControlType, bytes]], *, timestamp: int, base_offset: int = 0, leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """Return a batch of control records of the raft log: (type, encoded value) each."""
    records = [NewRecord(_KEY.pack(_KEY_VERSION, kind), value, timestamp) for kind, value in rows]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def control_type(record: Record) -> ControlType | None:
    """Return the type of a control record, None for a type of a newer Kafka. Raises CORRUPT_MESSAGE if the key is malformed."""
    try:
        _, number = _KEY.unpack_from(record.key or b"")
    except StructError:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"control record has key {record.key!r}") from None
    return ControlType(number) if number in ControlType._value2member_map_ else None


def end_txn_marker(batch: BatchView) -> EndTxnMarker | None:
    """Return the contents of the control batch if it is a transaction marker, else None."""
    records = batch.records()
    if not records:  # compaction leaves emptied control batches behind
        return None
    kind = control_type(records[0])
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    try:
        _, coordinator_epoch = _END_TXN.unpack_from(records[0].value or b"")
    except StructError:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"transaction marker has value {records[0].value!r}") from None
    return EndTxnMarker(kind is ControlType.COMMIT, coordinator_epoch)
