"""Retention of a whole log with remote segments: where it starts, and which segments leave the store. Pure.

The leader alone decides, by retention.ms and retention.bytes of the topic; followers take over its log start offset. What the topic's table does
not have yet stays for ottla.table.hold.ms.max. A remote segment is deleted
once all of its offsets are below the log start, whatever its lineage, or because its copy was given up. One of a lineage that an unclean election
has ended may lie beyond the log's end: it is deleted once the log starts in a later epoch, as in Kafka. Before that it stays, although it cannot be
read: if a replica of its lineage is elected again, by another unclean election, that log has it nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.tiers.own_copies import OwnCopies
from ottla.broker.tiers.remote_segments import FoundSegment, RemoteSegment, RemoteSegments, RemoteState, lineage_of
from ottla.storage.log.log import Log
from ottla.storage.log.retention import is_held_for_table

#: A copy that another process began so long ago is not finished any more, and no record of it is under way. Its clock may differ from ours.
GIVEN_UP_MS = 3_600_000


class Expiry(NamedTuple):
    """The new start of the log, and the segments that are then to leave the store."""

    log_start: int
    gone: list[RemoteSegment]


def expiry_of(log: Log, segments: RemoteSegments, now_ms: int, copies: OwnCopies) -> Expiry:
    """Return what retention takes now."""
    config, start = log.config, log.log_start_offset
    found: Iterable[FoundSegment] = segments.in_lineage(start, lineage_of(log))
    left = 0
    # Without a limit of bytes nothing after the first segment that stays is looked at: 10,000 take 40 ms.
    if config.retention_bytes >= 0:
        found = list(found)
        left = sum(each.segment.size for each in found)
        left += sum(each.file.size for each in log.segments if each.base_offset > log.remote_end)
    for segment, agreed_to in found:
        left -= segment.size
        written_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.event_ms
        is_old = config.retention_ms >= 0 and written_ms + config.retention_ms < now_ms
        if not is_old and not 0 <= config.retention_bytes <= left:
            break
        since_ms = max(segment.event_ms, written_ms + config.retention_ms if is_old else 0)
        if is_held_for_table(log, agreed_to) and now_ms - since_ms < config.ottla_table_hold_ms_max:
            break
        start = max(start, min(agreed_to, log.high_watermark))
    first = max((epoch for epoch, begin in log.epochs.entries if begin <= start), default=-1)
    gone = [each for each in segments.by_id.values() if _is_gone(each, start, first, now_ms, copies)]
    return Expiry(start, gone)


def _is_gone(segment: RemoteSegment, start: int, first_epoch: int, now_ms: int, copies: OwnCopies) -> bool:
    """Return True if nothing of the segment is the log's, which begins at `start`, in `first_epoch`."""
    if segment.state is RemoteState.COPY_STARTED:
        if copies.is_needed(segment.id):
            return False
        return copies.is_given_up(segment.id) or segment.event_ms + GIVEN_UP_MS < now_ms
    is_of_earlier_epochs = bool(segment.epochs) and segment.epochs[-1][0] < first_epoch
    return segment.end < start or is_of_earlier_epochs or segment.state is RemoteState.DELETE_STARTED
