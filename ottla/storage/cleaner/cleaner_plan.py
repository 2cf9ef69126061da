"""The plan of a log cleaner pass (`cleanup.policy=compact`): the segments it takes, and their groups. Pure.

Of every key below the cleaned end only the last record stays; offsets and order never change. Two passes: the dirty part
is read into a map from key to its last record (`offset_map`), then every segment from the start of the log is filtered by
that map (`cleaner_filter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.storage.log_config import LogConfig

#: The swap renames each segment of a group, at about 0.05 ms each, and the event loop waits for it.
GROUP_SEGMENTS_MAX = 50


class SegmentFacts(NamedTuple):
    base_offset: int
    size: int
    index_bytes: int
    first_timestamp: int
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a pass over the segments below `end`. Those from `first_dirty` on were never cleaned."""

    first_dirty: int
    end: int  # base offset of the first segment that stays as it is
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def make_plan(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    first_dirty: int,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Plan:
    """Returns the plan of a pass that is possible now. The last of `segments` is the active one, which is never cleaned."""
    if not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    end = segments[-1].base_offset
    dirty = [s for i, s in enumerate(segments[:-1]) if segments[i + 1].base_offset > first_dirty]
    if config.min_compaction_lag_ms > 0:
        young = [s for s in dirty if s.largest_timestamp > now_ms - config.min_compaction_lag_ms]
        end = min([end, *(s.base_offset for s in young)])
    # Only complete segments are cleaned: the one that contains the last stable offset is not.
    end = min(
        [end, *(s.base_offset for i, s in enumerate(segments[:-1]) if segments[i + 1].base_offset > last_stable_offset)]
    )
    cleaned = [s for s in segments if s.base_offset < end]
    dirty = [s for s in dirty if s.base_offset < end]
    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=now_ms)
    dirty_bytes = sum(s.size for s in dirty)
    return Plan(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=sum(s.size for s in cleaned) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        overdue=oldest < now_ms - config.max_compaction_lag_ms,
    )


def group_segments(segments: Sequence[SegmentFacts], config: LogConfig, end: int) -> list[list[int]]:
    """Groups adjacent segments (as indexes) whose total size fits into one segment, and whose offsets can be relative to one base."""
    groups: list[list[int]] = []
    size = index_bytes = 0
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else end
        group = groups[-1] if groups else []
        fits = (
            0 < len(group) < GROUP_SEGMENTS_MAX
            and size + segment.size <= config.segment_bytes
            and index_bytes + segment.index_bytes <= config.segment_index_bytes
            and following - 1 - segments[group[0]].base_offset < 2**31
        )
        if not fits:
            groups.append([])
            size = index_bytes = 0
        groups[-1].append(i)
        size += segment.size
        index_bytes += segment.index_bytes
    return groups
