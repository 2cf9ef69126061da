"""The segments of one log in the order of their base offsets; the last one is active, until a roll (room.py)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ottla.protocol.records.batch import HEADER_BYTES
from ottla.storage.log_files import AbortedTxn
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import COLD_READ_BYTES

NO_BYTES = memoryview(b"")


class Read(NamedTuple):
    """Complete batches; `records` stays valid as long as a reference to it exists."""

    records: memoryview
    next_offset: int  # the first offset not in `records`: where the next read continues

    @property
    def first_batch_offset(self) -> int:
        """The base offset of the first batch, or the requested offset if there is none."""
        return int.from_bytes(self.records[:8], "big") if self.records else self.next_offset


class Segments:
    """The segments of one log. There is always at least one."""

    __slots__ = ("_segments", "active", "bases")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self.active: Segment
        self.replace(segments)
        assert self.bases == sorted(set(self.bases))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        return sum(segment.file.size for segment in self._segments)

    def floor_index(self, offset: int) -> int:
        """Return the index of the segment whose range contains `offset`; 0 if the offset is before all segments."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment whose range contains `offset`, and all later ones."""
        return self._segments[self.floor_index(offset) :]

    def next_base(self, index: int) -> int | None:
        return self.bases[index + 1] if index + 1 < len(self.bases) else None

    def read(self, offset: int, max_bytes: int, up_to_offset: int, end_offset: int, min_one: bool) -> Read:
        """Return complete batches from the one that contains `offset` on, below `up_to_offset` (`Log.read`)."""
        segments = self._segments
        segment, index = self.active, len(segments) - 1
        if offset < segment.base_offset:
            index = self.floor_index(offset)
            segment = segments[index]
        start = segment.position_of(offset)
        while start is None or start == segment.file.size:
            index += 1  # at the end of a segment, or in a gap of compaction
            if index == len(segments):
                return Read(NO_BYTES, offset)
            segment = segments[index]
            start = segment.position_of(offset)
        file = segment.file
        following = self.next_base(index)
        segment_end = end_offset if following is None else following
        if up_to_offset >= segment_end:
            limit, limit_offset = file.size, segment_end
        else:
            boundary = segment.position_of(up_to_offset)
            limit, limit_offset = (file.size if boundary is None else boundary), up_to_offset
        if start >= limit:
            return Read(NO_BYTES, offset)
        in_memory = file.size
        if start < file.fresh_from:
            # The read includes the header after it, so that the kernel is asked once: each call takes a tenth of the cost of a
            # consumer's read.
            size = min(max_bytes, limit - start)
            in_memory = file.in_memory_until(start, size + HEADER_BYTES)
            max_bytes = max(min(in_memory - start, size), min(size, COLD_READ_BYTES) if min_one else 0)
            if not (max_bytes or min_one):
                return Read(NO_BYTES, offset)
        end = file.checked_end(start, segment.end_of_slice(start, limit, max_bytes, min_one, in_memory), in_memory)
        if end == start:
            return Read(NO_BYTES, offset)
        view = file.view()[start:end].toreadonly()
        next_offset = limit_offset if end == limit else file.offset_behind(start, end, in_memory)
        segment.remember(next_offset, end)
        return Read(view, next_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that a read_committed consumer of [start, end) must skip."""
        found: list[AbortedTxn] = []
        for segment in self.from_offset(start):
            if segment.txn_index.collect(segment.file.files, start, end, found):
                break
        return found

    def append(self, segment: Segment) -> None:
        assert segment.base_offset > self.bases[-1]
        self.active.file.limit_to(segment.base_offset - 1)
        self._segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def remove(self, gone: list[Segment]) -> None:
        """Remove segments; at least one must stay."""
        ids = {id(segment) for segment in gone}
        self.replace([segment for segment in self._segments if id(segment) not in ids])

    def replace(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        for segment, following in pairwise(segments):
            segment.file.limit_to(following.base_offset - 1)
        self.active.file.limit_to(self.active.base_offset + RELATIVE_OFFSET_MAX)
