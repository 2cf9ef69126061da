"""Reads of one remote segment: the batches from an offset on, aborted transactions, and searches by time.

Chunks come by `remote_chunks.py`, batches are looked at on a thread, in windows: the rest of a chunk, and more where a batch does not end in it.
Every batch that leaves here has passed its CRC and lies in the segment's offsets: a store that has other bytes is a failure, never an answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, TypeVar

from ottla.broker.tiers.chunk_files import ChunkName
from ottla.broker.tiers.objects import StoredSegment, WrongBytes
from ottla.broker.tiers.remote_chunks import RemoteChunks
from ottla.broker.tiers.remote_segments import RemoteSegment
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import HEADER_BYTES, MAGIC, BatchView
from ottla.protocol.records.record import iter_times
from ottla.protocol.work import Turn, do_now
from ottla.server.workers import Workers
from ottla.storage.errors import CorruptFile
from ottla.storage.log_files import AbortedTxn, aborted_txns
from ottla.storage.segment.segment_file import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

T = TypeVar("T")

#: Offset and position, both of 32 bits, and timestamp and offset. Offsets are relative to the segment's first one.
_OFFSET_ENTRY, _TIME_ENTRY = Struct(">ii"), Struct(">qi")


class RemoteRead(NamedTuple):
    """Complete batches of a remote segment, the first offset after them, and their end in the segment."""

    records: bytes
    next_offset: int
    end: int


class SegmentWindow(NamedTuple):
    """Bytes of a segment from a position on, which is where a batch begins."""

    position: int
    data: memoryview
    #: The offset index has this position.
    is_indexed: bool


class Needed(NamedTuple):
    """The window that is needed besides, because the parts found so far do not give the answer."""

    position: int
    size: int


class FoundTime(NamedTuple):
    """The first record that is not older than a timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class RemoteSegmentReader:
    """Reads one remote segment."""

    def __init__(self, chunks: RemoteChunks, workers: Workers, stored: StoredSegment, segment: RemoteSegment) -> None:
        self._chunks, self._workers, self._stored, self.segment = chunks, workers, stored, segment

    async def read(self, offset: int, agreed_to: int, max_bytes: int) -> RemoteRead:
        """Return batches from the one with `offset` on and before `agreed_to`: at least one, and more up to `max_bytes`.

        Raises:
            TierFailure: the store has failed, or its bytes are not those of the segment.
        """

        def look(window: SegmentWindow) -> RemoteRead | Needed:
            return _read(window, self.segment, offset, agreed_to, max_bytes)

        return await self._in_windows(await self._position(offset), look)

    async def search(self, timestamp: int, start: int, agreed_to: int, decompressed_max: int) -> FoundTime | None:
        """Return the first record in [start, agreed_to) that is not older than `timestamp`. Raises TierFailure."""

        def look(window: SegmentWindow) -> FoundTime | Needed | None:
            return _search(window, self.segment, timestamp, start, agreed_to, decompressed_max)

        entry = _last_below(await self.file(TIME_INDEX_SUFFIX), _TIME_ENTRY, timestamp)
        before = self.segment.start + (0 if entry is None else entry[1])
        return await self._in_windows(await self._position(max(before, start)), look)

    async def aborted(self) -> list[AbortedTxn]:
        """Return the transactions whose abort marker is in the segment. Raises TierFailure."""
        if not self.segment.has_aborted:
            return []
        try:
            return list(
                aborted_txns(f"{self.segment.start}{TXN_INDEX_SUFFIX}", bytes(await self.file(TXN_INDEX_SUFFIX)))
            )
        except CorruptFile as fault:
            self._chunks.forget(self.segment.id)
            raise WrongBytes(str(fault)) from fault

    async def file(self, suffix: str) -> Buffer:
        """Return one of the small files beside the log. Raises TierFailure."""
        return await self._chunks.get(ChunkName(self.segment.id, suffix), lambda: self._stored.file(suffix))

    def chunk_of(self, number: int) -> tuple[ChunkName, Callable[[], Buffer]]:
        """Return the name of a chunk of the log, and the call that reads it from the store."""
        return ChunkName(self.segment.id, LOG_SUFFIX, number), lambda: self._stored.chunk(number)

    def chunk_at(self, position: int) -> int:
        return position // self._stored.chunk_bytes

    async def _position(self, offset: int) -> int:
        entry = _last_below(await self.file(INDEX_SUFFIX), _OFFSET_ENTRY, offset - self.segment.start + 1)
        return entry[1] if entry is not None and 0 <= entry[1] < self.segment.size else 0

    async def _in_windows(self, position: int, look: Callable[[SegmentWindow], T | Needed]) -> T:
        """Return the result of a search in the window at this position, or in those that it asks for."""
        found: T | Needed = Needed(position, HEADER_BYTES)
        is_indexed = position > 0
        try:
            while isinstance(found, Needed):
                window = SegmentWindow(found.position, await self._bytes(*found), is_indexed)
                found, is_indexed = await self._workers.run(look, window), False
        except WrongBytes:
            self._chunks.forget(self.segment.id)
            raise
        return found

    async def _bytes(self, position: int, size: int) -> memoryview:
        """Return the rest of the chunk from this position on, or as many bytes of it and its followers."""
        size = min(size, self.segment.size - position)
        number = self.chunk_at(position)
        data = memoryview(await self._chunks.get(*self.chunk_of(number)))[
            position - number * self._stored.chunk_bytes :
        ]
        if len(data) >= size:
            return data
        parts, missing = [data], size - len(data)
        while missing > 0:
            number += 1
            parts.append(memoryview(await self._chunks.get(*self.chunk_of(number)))[:missing])
            missing -= len(parts[-1])
        return memoryview(b"".join(parts))


def _batch_at(window: SegmentWindow, at: int, segment: RemoteSegment) -> BatchView | Needed | None:
    """Return the batch at a place of the window, what is missing of it, or None at the end of the segment. Raises WrongBytes."""
    data, left = window.data, segment.size - window.position - at
    if left <= 0:
        return None
    if left >= HEADER_BYTES and len(data) - at < HEADER_BYTES:
        return Needed(window.position + at, HEADER_BYTES)
    if len(data) - at >= HEADER_BYTES:
        batch = BatchView(data, at)
        is_inside = segment.start <= batch.base_offset <= batch.last_offset <= segment.end
        if is_inside and batch.magic == MAGIC and HEADER_BYTES <= batch.size <= left:
            return batch if at + batch.size <= len(data) else Needed(window.position + at, batch.size)
    raise WrongBytes(f"no batch of the offsets [{segment.start}, {segment.end}] is at position {window.position + at}")


def _read(
    window: SegmentWindow, segment: RemoteSegment, offset: int, agreed_to: int, max_bytes: int
) -> RemoteRead | Needed:
    begin, at, following = -1, 0, offset
    while (batch := _batch_at(window, at, segment)) is not None:
        if isinstance(batch, Needed):
            if begin < 0:
                return Needed(batch.position, max(batch.size, max_bytes))
            break
        if not at and window.is_indexed and batch.base_offset > offset:
            raise WrongBytes(f"the index has position {window.position} for offset {offset}, which lies before it")
        end = at + batch.size
        if batch.last_offset >= offset:
            if batch.base_offset >= agreed_to or (begin >= 0 and end - begin > max_bytes):
                break
            _check(batch)
            if begin < 0:
                begin = at
            following = batch.next_offset
        at = end
    if begin < 0:
        raise WrongBytes(f"no batch of the segment has offset {offset}")
    # A copy: a response that a slow client takes must not keep a chunk of 4 MiB in memory.
    return RemoteRead(bytes(window.data[begin:at]), following, window.position + at)


def _search(
    window: SegmentWindow, segment: RemoteSegment, timestamp: int, start: int, agreed_to: int, decompressed_max: int
) -> FoundTime | Needed | None:
    at = 0
    while (batch := _batch_at(window, at, segment)) is not None:
        if isinstance(batch, Needed):
            return batch
        if batch.base_offset >= agreed_to:
            return None
        at += batch.size
        if batch.max_timestamp < timestamp or batch.last_offset < start:
            continue
        _check(batch)
        try:
            data = do_now(batch.expanded(Turn(), decompressed_max))
            times = iter_times(data, batch.count, batch.base_offset, batch.base_timestamp, batch.append_time)
            for offset, found in times:
                if found >= timestamp and start <= offset < agreed_to:
                    return FoundTime(found, offset, batch.partition_leader_epoch)
        except KafkaError as fault:
            raise WrongBytes(str(fault)) from fault
    return None


def _check(batch: BatchView) -> None:
    try:
        batch.check_crc()
    except KafkaError as fault:
        raise WrongBytes(f"the batch at offset {batch.base_offset} is damaged") from fault


def _last_below(data: Buffer, entry: Struct, limit: int) -> tuple[int, int] | None:
    """Return the last entry of an index whose first number is below `limit`, by bisection: an index of 1 GB has 250,000 entries."""
    place = bisect_left(
        range(len(data) // entry.size), limit, key=lambda at: entry.unpack_from(data, at * entry.size)[0]
    )
    if not place:
        return None
    found: tuple[int, int] = entry.unpack_from(data, (place - 1) * entry.size)
    return found
