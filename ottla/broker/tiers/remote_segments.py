"""The segments of one partition in remote storage, as `__remote_log_metadata` says (KIP-405). Pure: records in, answers out.

    none -> COPY_STARTED -> COPY_FINISHED -> DELETE_STARTED -> DELETE_FINISHED, and from COPY_STARTED to DELETE_STARTED if a copy has failed

Only a finished segment can be read. Two leaders may both have copied the same offsets, and after an unclean election the store has records that
the log has not: so a segment counts at an offset only if its leader epoch there is the one that the log's lineage has. The lineage is what
`LeaderEpochs.entries` has: it goes back to the log start offset, also for what is not on the local disk any more.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, islice
from typing import NamedTuple, TypeAlias

from ottla.protocol.internal_topics.remote_log_records import (
    RemoteLogRecord,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from ottla.storage.directories.future_logs import agreement
from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

#: (leader epoch, its first offset), growing in both.
Epochs: TypeAlias = Sequence[tuple[int, int]]


class Lineage(NamedTuple):
    """The leader epochs of a log, and its end: records in the store beyond that are not the log's."""

    epochs: Epochs
    end: int


def lineage_of(log: Log) -> Lineage:
    return Lineage(log.epochs.entries, log.log_end_offset)


class RemoteState(IntEnum):
    """The states of a remote segment, by Kafka's numbers."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


#: The states that may follow. A record may be there twice, because an answer to its writer was lost.
FOLLOWING: dict[RemoteState, tuple[RemoteState, ...]] = {
    RemoteState.COPY_STARTED: (RemoteState.COPY_FINISHED, RemoteState.DELETE_STARTED),
    RemoteState.COPY_FINISHED: (RemoteState.DELETE_STARTED,),
    RemoteState.DELETE_STARTED: (RemoteState.DELETE_FINISHED,),
    RemoteState.DELETE_FINISHED: (),
}


class RemoteSegment(NamedTuple):
    """A segment in remote storage. `end` is its last offset; `epochs` are (leader epoch, first offset) of what is in it."""

    id: bytes
    start: int
    end: int
    size: int
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    broker_id: int
    event_ms: int
    state: RemoteState = RemoteState.COPY_STARTED
    has_aborted: bool = True
    custom: bytes | None = None


class TieredPartition(NamedTuple):
    """The partition that records are about: Kafka's TopicIdPartition."""

    topic: str
    topic_id: bytes
    partition: int


class FoundSegment(NamedTuple):
    """A segment that has an offset, and the offset up to which it is the log's own."""

    segment: RemoteSegment
    agreed_to: int


class _ByStart:
    """Segments by their starts, which may overlap, with the largest end of each prefix beside them."""

    def __init__(self, segments: Iterable[RemoteSegment] = ()) -> None:
        self.segments = sorted(segments, key=lambda each: (each.start, each.end, each.id))
        self._ends = list(accumulate((each.end for each in self.segments), max))

    def having(self, offset: int) -> Iterator[RemoteSegment]:
        """Yield the segments that have the offset, the last ones first."""
        index = self._behind(offset) - 1
        while index >= 0 and self._ends[index] >= offset:
            if self.segments[index].end >= offset:
                yield self.segments[index]
            index -= 1

    def after(self, offset: int) -> Iterator[RemoteSegment]:
        """Yield the segments that begin after the offset."""
        return islice(self.segments, self._behind(offset), None)

    def _behind(self, offset: int) -> int:
        return bisect_right(self.segments, offset, key=lambda each: each.start)


class RemoteSegments:
    """The remote segments of a partition; `replay` alone changes them."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, RemoteSegment] = {}
        #: The segments that can be read, and those of them with aborted transactions.
        self._finished, self._with_aborted = _ByStart(), _ByStart()
        self._is_outdated = False

    def replay(self, record: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord) -> None:
        """Apply a record. One that cannot follow the state is left out, as in Kafka: a deposed leader may have written it."""
        segment_id = record.remote_log_segment_id.id
        known = self.by_id.get(segment_id)
        try:
            state = RemoteState(record.remote_log_segment_state)
        except ValueError:
            logger.warning(
                "A record of remote segment %s has the unknown state %d",
                segment_id.hex(),
                record.remote_log_segment_state,
            )
            return
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            if known is None and state is RemoteState.COPY_STARTED:
                self.by_id[segment_id] = _segment_of(record)
            return
        if known is None or state not in FOLLOWING[known.state]:
            return
        following = known._replace(
            state=state, event_ms=record.event_timestamp_ms, broker_id=record.broker_id, custom=record.custom_metadata
        )
        if state is RemoteState.DELETE_FINISHED:
            del self.by_id[segment_id]
        else:
            self.by_id[segment_id] = following
        if RemoteState.COPY_FINISHED in (known.state, state):
            self._is_outdated = True

    def _sort(self) -> None:
        """Sort the finished segments, once after many records: a start replays thousands."""
        if self._is_outdated:
            self._is_outdated = False
            self._finished = _ByStart(each for each in self.by_id.values() if each.state is RemoteState.COPY_FINISHED)
            self._with_aborted = _ByStart(each for each in self._finished.segments if each.has_aborted)

    def find(self, offset: int, lineage: Lineage) -> FoundSegment | None:
        """Return a segment that has the log's record at `offset`; if there are several, the one that reaches furthest."""
        self._sort()
        best: FoundSegment | None = None
        for segment in self._finished.having(offset):
            agreed_to = _agreed_to(segment, offset, lineage)
            if agreed_to > offset and (best is None or agreed_to > best.agreed_to):
                best = FoundSegment(segment, agreed_to)
        return best

    def with_aborted(self, offset: int, lineage: Lineage) -> Iterator[FoundSegment]:
        """Yield the segments with aborted transactions that have the log's records from `offset` on, by their starts. There may be
        two of the same offsets, and of 10,000 segments none.
        """
        self._sort()
        found = self._with_aborted
        for segment in (*reversed(list(found.having(offset))), *found.after(offset)):
            start = max(offset, segment.start)
            if (agreed_to := _agreed_to(segment, start, lineage)) > start:
                yield FoundSegment(segment, agreed_to)

    def having(self, offset: int) -> list[RemoteSegment]:
        """Return the segments that have `offset`, of any lineage; first those that reach furthest."""
        self._sort()
        found = [each for each in self._finished.having(offset) if each.epochs]
        return sorted(found, key=lambda each: each.end, reverse=True)

    def following(self, offset: int, lineage: Lineage) -> FoundSegment | None:
        """Return the result of `find`, or the first segment after the offset if no segment has it, because an offset may be in
        a gap.
        """
        found = self.find(offset, lineage)
        if found is not None:
            return found
        for segment in self._finished.after(offset):
            if (found := self.find(segment.start, lineage)) is not None:
                return found
        return None

    def covered_to(self, start: int, lineage: Lineage) -> int:
        """Return the first offset from `start` on that no finished segment has."""
        offset = start
        while (found := self.find(offset, lineage)) is not None:
            offset = found.agreed_to
        return offset

    def in_lineage(self, start: int, lineage: Lineage) -> Iterator[FoundSegment]:
        """Yield the segments by which the log from `start` on is read, each once, in the order of their offsets."""
        found = self.following(start, lineage)
        while found is not None:
            yield found
            found = self.following(found.agreed_to, lineage)


def _agreed_to(segment: RemoteSegment, offset: int, lineage: Lineage) -> int:
    """Return the offset up to which a segment is the log's own, from `offset` on; -1 if the log ends before that."""
    end = min(segment.end + 1, lineage.end)
    return agreement(segment.epochs, lineage.epochs, offset, end) if offset < end else -1


def _segment_of(record: RemoteLogSegmentMetadataRecord) -> RemoteSegment:
    return RemoteSegment(
        id=record.remote_log_segment_id.id,
        start=record.start_offset,
        end=record.end_offset,
        size=record.segment_size_in_bytes,
        max_timestamp=record.max_timestamp_ms,
        epochs=tuple((each.leader_epoch, each.offset) for each in record.segment_leader_epochs),
        broker_id=record.broker_id,
        event_ms=record.event_timestamp_ms,
        has_aborted=not record.txn_index_empty,
        custom=record.custom_metadata,
    )


def started(place: TieredPartition, segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    """Return the record with which a copy begins."""
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_entry(place, segment.id),
        start_offset=segment.start,
        end_offset=segment.end,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp,
        event_timestamp_ms=segment.event_ms,
        segment_leader_epochs=[SegmentLeaderEpochEntry(epoch, offset) for epoch, offset in segment.epochs],
        segment_size_in_bytes=segment.size,
        remote_log_segment_state=RemoteState.COPY_STARTED,
        txn_index_empty=not segment.has_aborted,
    )


def changed(
    place: TieredPartition, segment_id: bytes, state: RemoteState, broker_id: int, now_ms: int
) -> RemoteLogSegmentMetadataUpdateRecord:
    """Return the record of a segment's next state."""
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=_entry(place, segment_id),
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        remote_log_segment_state=state,
    )


def place_of(record: RemoteLogRecord) -> TieredPartition | None:
    """Return the partition that a record is about."""
    if isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord):
        entry = record.remote_log_segment_id.topic_id_partition
        return TieredPartition(entry.name, entry.id, entry.partition)
    return None


def _entry(place: TieredPartition, segment_id: bytes) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(TopicIdPartitionEntry(place.topic, place.topic_id, place.partition), segment_id)
