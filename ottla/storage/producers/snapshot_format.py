"""Producer states in a file: `<offset, 20 digits>.snapshot`, Kafka's ProducerSnapshot version 1.

    version i16, crc u32 (CRC-32C of all that follows), count i32, then rows (46 bytes):
    producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
    coordinator epoch i32, first offset of the current transaction i64

The file has the state after every batch below its offset. A producer has a row for each of its remembered batches, the
newest last. Kafka writes only the newest, and reads the last of several rows. With that alone, a leader that loads the state
rejects the retries of a pipelining producer as out of order; the producer sends them in a new epoch, and they are duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from ottla.protocol.records.crc import crc32c
from ottla.storage.errors import CorruptFile
from ottla.storage.producers.producer_state import NO_OFFSET, BatchMetadata, ProducerState

VERSION = 1
SUFFIX = ".snapshot"
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
# The row of a producer that has only a marker.
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
    """Decodes the states of a snapshot file.

    Raises:
        CorruptFile: the version is unknown, the CRC is wrong, or the length does not match the count.
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
