"""Producer states in a file: `<offset, 20 digits>.snapshot`, Kafka's ProducerSnapshot version 1.

    version i16, crc u32 (CRC-32C of all that follows), count i32, then rows (46 bytes):
    producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
    coordinator epoch i32, first offset of the current transaction i64

The file holds the state after every batch below its offset. A producer has a row for each of its remembered batches, the
newest last. Kafka writes that one only, and of several rows takes the last: a pipelining producer whose leader loads such a
state finds its retries refused as out of order, and what it then sends in a new epoch is there twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from ottla.protocol.records.crc import crc32c
from ottla.storage.errors import CorruptFile
from ottla.storage.producers import NO_OFFSET, BatchMetadata, ProducerState

VERSION = 1
SUFFIX = ".snapshot"
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
# Of a producer of which only a marker is known.
NO_BATCH = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
assert _HEADER.size == 10 and _ENTRY.size == 46


def encode(states: Iterable[ProducerState]) -> bytes:
    rows: list[bytes] = []
    add, pack = rows.append, _ENTRY.pack
    for state in states:
        producer_id, epoch = state.producer_id, state.epoch
        coordinator_epoch, first = state.coordinator_epoch, state.current_txn_first_offset
        for sequence, offset, delta, timestamp in state.batches[:-1]:
            add(pack(producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first))
        sequence, offset, delta, _ = state.batches[-1] if state.batches else NO_BATCH
        add(pack(producer_id, epoch, sequence, offset, delta, state.last_timestamp, coordinator_epoch, first))
    body = len(rows).to_bytes(4, "big") + b"".join(rows)
    return _HEADER.pack(VERSION, crc32c(body), len(rows)) + body[4:]


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
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first in _ENTRY.iter_unpack(
        data[_HEADER.size :]
    ):
        state = states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = states[producer_id] = ProducerState(producer_id, epoch)
        state.coordinator_epoch, state.last_timestamp = coordinator_epoch, timestamp
        state.current_txn_first_offset = first if first >= 0 else NO_OFFSET
        if offset >= 0:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
    return list(states.values())
