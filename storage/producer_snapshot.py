"""Producer states in a file: `<offset, 20 digits>.snapshot`, Kafka's ProducerSnapshot version 1.

    version i16, crc u32 (CRC-32C of all that follows), count i32, then rows (46 bytes):
    producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
    coordinator epoch i32, first offset of the current transaction i64

The file holds the state after every batch below its offset. A producer has a row for each of its remembered batches, the
newest last. Kafka writes that one only, and of several rows takes the last: a pipelining producer whose leader loads such a
state finds its retries refused as out of order, and what it then sends in a new epoch is there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from protocol.records.crc import crc32c
from storage.errors import CorruptFile
from storage.producers import NONE, BatchMetadata, ProducerState

VERSION = 1
SUFFIX = ".snapshot"
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
assert _HEADER.size == 10 and _ENTRY.size == 46


def encode(states: Iterable[ProducerState]) -> bytes:
    entries = [row for state in states for row in _rows(state)]
    body = len(entries).to_bytes(4, "big") + b"".join(entries)
    return _HEADER.pack(VERSION, crc32c(body), len(entries)) + body[4:]


def _rows(state: ProducerState) -> Iterator[bytes]:
    newest = BatchMetadata(state.last_sequence, state.last_offset, state.offset_delta, state.last_timestamp)
    for batch in (*state.batches[:-1], newest):
        yield _ENTRY.pack(
            state.producer_id,
            state.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp,
            state.coordinator_epoch,
            state.current_txn_first_offset,
        )


def decode(path: str, data: bytes) -> list[ProducerState]:
    """The states of a snapshot file.

    Raises:
        CorruptFile: another version, a wrong CRC, or not the length that the count asks for.
    """
    if len(data) < _HEADER.size:
        raise CorruptFile(path, f"{len(data)} bytes are too few for a header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(path, f"version {version} is not known")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptFile(path, "the CRC does not match")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptFile(path, f"{len(data)} bytes do not hold {count} entries")
    states: dict[int, ProducerState] = {}
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        state = _state(*fields)
        older = states.get(state.producer_id)
        if older is not None and older.epoch == state.epoch:
            state.batches[:0] = older.batches
        states[state.producer_id] = state
    return list(states.values())


def _state(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerState:
    batches = [BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)] if last_offset >= 0 else []
    first = txn_first_offset if txn_first_offset >= 0 else NONE
    return ProducerState(producer_id, epoch, coordinator_epoch, timestamp, first, batches)
