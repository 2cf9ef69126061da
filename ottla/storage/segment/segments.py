"""The segments of one log in the order of their base offsets; the last one is active, until another one must follow it (`roll_reason`).

The conditions for a roll to a new segment are in Kafka's order (LogSegment.shouldRoll). The age of a segment is measured from its first
batch's timestamp, or from its creation if that batch has none. In a compacted topic max.compaction.lag.ms limits the age as well as
segment.ms, because the active segment is never compacted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from ottla.storage.config import NEVER, LogConfig
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment


class Segments:
    """The segments of one log. There is always at least one."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self.active: Segment
        self.replace(segments)
        assert self._bases == sorted(set(self._bases))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def bases(self) -> list[int]:
        """The base offsets."""
        return self._bases

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    def floor_index(self, offset: int) -> int:
        """Returns the index of the segment whose range contains `offset`; 0 if the offset is before all segments."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """Returns the segment whose range contains `offset`, and all later ones."""
        return self._segments[self.floor_index(offset) :]

    def next_base(self, index: int) -> int | None:
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    def append(self, segment: Segment) -> None:
        assert segment.base_offset > self._bases[-1]
        self.active.file.limit_to(segment.base_offset - 1)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove(self, gone: list[Segment]) -> None:
        """Removes segments; at least one must stay."""
        ids = {id(segment) for segment in gone}
        self.replace([segment for segment in self._segments if id(segment) not in ids])

    def replace(self, segments: list[Segment]) -> None:
        assert segments
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        for segment, following in pairwise(segments):
            segment.file.limit_to(following.base_offset - 1)
        self.active.file.limit_to(self.active.base_offset + RELATIVE_OFFSET_MAX)


def roll_reason(
    segment: Segment, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int, jitter_ms: int
) -> str | None:
    """Returns why a batch of `size` bytes must start a new segment, or None."""
    if segment.file.size > config.segment_bytes - size:
        return "size"
    if segment.file.size and _age_ms(segment, max_timestamp, now_ms) > config.roll_ms - jitter_ms:
        return "time"
    if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return "offset"
    if segment.indexes.full:
        return "index"
    return None


def roll_deadline(segment: Segment, config: LogConfig, jitter_ms: int) -> tuple[int, int]:
    """Returns (timestamp, wall-clock time): a batch later than either needs a new segment."""
    if segment.file.size == 0:
        return NEVER, NEVER
    limit = config.roll_ms - jitter_ms
    first = segment.first_timestamp()
    return (first + limit, NEVER) if first >= 0 else (NEVER, segment.created_ms + limit)


def _age_ms(segment: Segment, max_timestamp: int, now_ms: int) -> int:
    first = segment.first_timestamp()
    return max_timestamp - first if first >= 0 else now_ms - segment.created_ms
