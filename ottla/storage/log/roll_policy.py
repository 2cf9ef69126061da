"""The conditions for a roll to a new segment, in Kafka's order (LogSegment.shouldRoll).

The age of a segment is measured from its first batch's timestamp, or from its creation if that batch has none. In a compacted
topic max.compaction.lag.ms limits the age as well as segment.ms, because the active segment is never compacted.
"""

from __future__ import annotations

from ottla.storage.config import NEVER, LogConfig
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment


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
