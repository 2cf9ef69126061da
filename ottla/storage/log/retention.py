"""Retention: which segments are deleted, and why. Pure.

A prefix of the log is deleted, segment by segment, as long as one of the reasons holds, but nothing at or above the high
watermark (invariant 12). Kafka's rules:

    time   the segment's largest timestamp is older than retention.ms
    size   the log without the segment is still at least retention.bytes
    start  the next segment begins at or before the log start offset
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    base_offset: int
    next_base_offset: int  # of the segment after it; the log end offset for the last
    size: int
    largest_timestamp: int  # the file's modification time if no record has one


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Returns how many segments, from the first on, to delete now. It may be all of them: the caller then creates an empty one."""
    total = sum(segment.size for segment in segments)
    gone = 0
    for segment in segments:
        if segment.next_base_offset > high_watermark or (segment is segments[-1] and segment.size == 0):
            break
        if reason(segment, config, total, log_start_offset, now_ms, last=segment is segments[-1]) is None:
            break
        total -= segment.size
        gone += 1
    return gone


def reasons(
    segments: Sequence[SegmentFacts], count: int, config: LogConfig, log_start_offset: int, now_ms: int
) -> list[str]:
    """Returns the reasons why the first `count` segments are deleted, for log lines with Kafka's words."""
    text = {
        "time": f"log retention time {config.retention_ms}ms breach",
        "size": f"log retention size {config.retention_bytes} breach",
        "start": f"log start offset {log_start_offset} breach",
    }
    total = sum(segment.size for segment in segments)
    found = []
    for segment in segments[:count]:
        why = reason(segment, config, total, log_start_offset, now_ms, last=segment is segments[-1])
        found.append(text[why or "start"])
        total -= segment.size
    return found


def reason(
    segment: SegmentFacts, config: LogConfig, total: int, log_start_offset: int, now_ms: int, *, last: bool
) -> str | None:
    """Returns why the first of the remaining segments may be deleted, or None."""
    if config.delete:
        if config.retention_ms >= 0 and now_ms - segment.largest_timestamp > config.retention_ms:
            return "time"
        if config.retention_bytes >= 0 and total - segment.size >= config.retention_bytes:
            return "size"
    if not last and segment.next_base_offset <= log_start_offset:
        return "start"
    return None
