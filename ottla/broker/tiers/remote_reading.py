"""Reads of remote segments: the batches from an offset on, aborted transactions, and searches by time. All of it runs off the event loop.

What was fetched last is kept in memory, in chunks and within a bound, so that a consumer that reads on is served from one request of the
store for several Fetches. Every batch that leaves here has passed its CRC and lies in the segment's offsets and epochs: a store that has
other bytes is a failure, never an answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from struct import Struct
from threading import Lock
from typing import NamedTuple

from ottla.broker.tiers.objects import TierFailure, TierStore, name_of
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchView
from ottla.protocol.records.record import iter_times
from ottla.protocol.work import Turn, do_now
from ottla.storage.errors import CorruptFile
from ottla.storage.log_files import AbortedTxn, aborted_txns
from ottla.storage.segment.segment_file import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

CHUNK_BYTES = 4 << 20
#: Offset and position, both of 32 bits, and timestamp and offset. Offsets are relative to the segment's first one.
_OFFSET_ENTRY, _TIME_ENTRY = Struct(">ii"), Struct(">qi")


class RemoteRead(NamedTuple):
    """Complete batches of a remote segment, and the first offset behind them."""

    records: bytes
    next_offset: int


class Chunks:
    """The parts of objects that were read last, by (name, number), up to a number of bytes. Threads share it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = Lock()
        self.bytes_held = self.requests = 0

    def get(self, name: str, number: int) -> bytes | None:
        with self._lock:
            found = self._held.get((name, number))
            if found is not None:
                self._held.move_to_end((name, number))
            return found

    def keep(self, name: str, number: int, data: bytes) -> None:
        with self._lock:
            self.requests += 1
            self.bytes_held += len(data) - len(self._held.pop((name, number), b""))
            self._held[name, number] = data
            while self.bytes_held > self._bytes_max and len(self._held) > 1:
                self.bytes_held -= len(self._held.popitem(last=False)[1])


class RemoteSegmentReader:
    """Reads one remote segment, on a thread."""

    def __init__(self, store: TierStore, chunks: Chunks, place: TieredPartition, segment: RemoteSegment) -> None:
        self._store, self._chunks, self._place, self.segment = store, chunks, place, segment
        self._name = name_of(place, segment, LOG_SUFFIX)

    def read(self, offset: int, agreed_to: int, max_bytes: int) -> RemoteRead:
        """Return batches from the one with `offset` on and before `agreed_to`: at least one, and more up to `max_bytes`.

        Raises:
            TierFailure: the store has failed, or its bytes are not those of the segment.
        """
        parts: list[bytes] = []
        total, following = 0, offset
        for batch, data in self._batches(self._position(offset)):
            if batch.last_offset < offset:
                continue
            if batch.base_offset >= agreed_to or (parts and total + len(data) > max_bytes):
                break
            self._check(batch)
            parts.append(data)
            total += len(data)
            following = batch.next_offset
            if total >= max_bytes:
                break
        return RemoteRead(b"".join(parts), following)

    def search(self, timestamp: int, start: int, agreed_to: int, decompressed_max: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record in [start, agreed_to) that is not older than `timestamp`."""
        entry = _last_below(self._object(TIME_INDEX_SUFFIX), _TIME_ENTRY, timestamp)
        before = self.segment.start + (0 if entry is None else entry[1])
        for batch, _ in self._batches(self._position(max(before, start))):
            if batch.base_offset >= agreed_to:
                return None
            if batch.max_timestamp < timestamp or batch.last_offset < start:
                continue
            self._check(batch)
            try:
                data = do_now(batch.expanded(Turn(), decompressed_max))
                for offset, found in iter_times(
                    data, batch.count, batch.base_offset, batch.base_timestamp, batch.append_time
                ):
                    if found >= timestamp and start <= offset < agreed_to:
                        return found, offset, batch.partition_leader_epoch
            except KafkaError as fault:
                raise TierFailure(f"{self._name}: {fault}") from fault
        return None

    def aborted(self) -> Sequence[AbortedTxn]:
        """Return the transactions whose abort marker is in the segment."""
        try:
            return aborted_txns(self._name, self._object(TXN_INDEX_SUFFIX)) if self.segment.has_aborted else ()
        except CorruptFile as fault:
            raise TierFailure(str(fault)) from fault

    def _position(self, offset: int) -> int:
        entry = _last_below(self._object(INDEX_SUFFIX), _OFFSET_ENTRY, offset - self.segment.start + 1)
        return entry[1] if entry is not None and 0 <= entry[1] < self.segment.size else 0

    def _batches(self, position: int) -> Iterator[tuple[BatchView, bytes]]:
        size = self.segment.size
        while position < size:
            head = self._bytes(position, min(HEADER_BYTES, size - position))
            length = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD_BYTES
            if len(head) < HEADER_BYTES or length < HEADER_BYTES or position + length > size:
                raise TierFailure(f"{self._name}: no batch at position {position}")
            data = self._bytes(position, length)
            batch = BatchView(memoryview(data))
            first, last = self.segment.start, self.segment.end
            if not first <= batch.base_offset <= batch.last_offset <= last:
                raise TierFailure(f"{self._name}: offset {batch.base_offset} is not in [{first}, {last}]")
            yield batch, data
            position += length

    def _check(self, batch: BatchView) -> None:
        try:
            batch.check_crc()
        except KafkaError as fault:
            raise TierFailure(f"{self._name}: the batch at {batch.base_offset} is damaged") from fault

    def _object(self, suffix: str) -> bytes:
        """Return a small object whole."""
        name = name_of(self._place, self.segment, suffix)
        data = self._chunks.get(name, 0)
        if data is None:
            data = self._store.get(name)
            if data is None:
                raise TierFailure(f"{name} is missing")
            self._chunks.keep(name, 0, data)
        return data

    def _bytes(self, start: int, length: int) -> bytes:
        parts: list[bytes] = []
        position, end = start, start + length
        while position < end:
            number = position // CHUNK_BYTES
            chunk, at = self._chunk(number), position - number * CHUNK_BYTES
            piece = chunk[at : at + end - position]
            if not piece:
                raise TierFailure(f"{self._name} ends at {position}")
            parts.append(piece)
            position += len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk(self, number: int) -> bytes:
        chunk = self._chunks.get(self._name, number)
        if chunk is None:
            start = number * CHUNK_BYTES
            wanted = min(CHUNK_BYTES, self.segment.size - start)
            chunk = self._store.get_range(self._name, start, wanted)
            if len(chunk) != wanted:
                raise TierFailure(f"{self._name} has {len(chunk)} bytes of {wanted} at {start}")
            self._chunks.keep(self._name, number, chunk)
        return chunk


def _last_below(data: bytes, entry: Struct, limit: int) -> tuple[int, int] | None:
    """Return the last entry of an index whose first number is below `limit`, by bisection: an index of 1 GB has 250,000 entries."""
    place = bisect_left(
        range(len(data) // entry.size), limit, key=lambda at: entry.unpack_from(data, at * entry.size)[0]
    )
    if not place:
        return None
    found: tuple[int, int] = entry.unpack_from(data, (place - 1) * entry.size)
    return found


def aborted_between(readers: Sequence[RemoteSegmentReader], start: int, end: int) -> tuple[list[AbortedTxn], bool]:
    """Return the aborted transactions that overlap [start, end), and whether no later segment can have more of them."""
    found: list[AbortedTxn] = []
    for reader in readers:
        for txn in reader.aborted():
            if txn.last_offset >= start and txn.first_offset < end:
                found.append(txn)
            if txn.last_stable_offset >= end:
                return found, True
    return found, False
