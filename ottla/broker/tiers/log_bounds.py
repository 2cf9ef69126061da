"""The records of remote segments say up to where the store has a log, and from where on the log can be read (KIP-405).

A leader may have a log start offset from before what is stored: the former leader has deleted records, and has ended before this replica learned
of it. No segment has those offsets any more, and reads of them would fail until retention came as far. So the log start moves to the first
offset that the store or the disk has. Kafka's leader does the same once, when it begins, by the records that it has read by then.

What is only not known here must not be lost by that. So the store is listed first, and a barrier is awaited: all records that were committed before
are then known. A copy that is under way may still end. And objects that no record names may have lost their records: the start stays below them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_log import LedLog
from ottla.broker.tiers.metadata_topic import MetadataTopic
from ottla.broker.tiers.objects import FoundObject
from ottla.broker.tiers.remote_segments import RemoteSegments, RemoteState, TieredPartition, lineage_of
from ottla.storage.log.log import Log
from ottla.storage.log.retention import advance_log_start_offset

logger = logging.getLogger(__name__)


def place_of_partition(partition: Partition) -> TieredPartition:
    return TieredPartition(partition.topic, partition.topic_id, partition.index)


def learn(log: Log, segments: RemoteSegments) -> None:
    """Note up to which offset the store has the segments of the local disk, without a gap, and with the log's own lineage."""
    start, lineage = log.local_start_offset, lineage_of(log)
    covered = segments.covered_to(start, lineage)
    has_any = covered > start or segments.find(start - 1, lineage) is not None
    log.remote_end = covered - 1 if has_any else -1


def first_readable(log: Log, segments: RemoteSegments, unnamed: Sequence[FoundObject] = ()) -> int:
    """Return the first offset from the log start on that the store or the disk has, or may have: that of a copy under way, or of an
    object without a record.
    """
    start, first = log.log_start_offset, min(log.local_start_offset, log.high_watermark)
    if start < first and (found := segments.following(start, lineage_of(log))) is not None:
        first = min(first, found.segment.start)
    if start >= first:
        return start
    under_way = (each for each in segments.by_id.values() if each.state is RemoteState.COPY_STARTED)
    possible = [each.start for each in under_way if each.end >= start] + [each.start for each in unnamed]
    return max(start, min([first, *possible]))


async def start_where_readable(
    led: LedLog, topic: MetadataTopic, objects_of: Callable[[TieredPartition], Awaitable[Sequence[FoundObject]]]
) -> None:
    """Move the start of a led log, of whose first records there is no segment, to the first offset that can be read.

    Raises:
        KafkaError: the barrier is not committed.
        TierFailure: the store cannot be listed.
    """
    partition, log, place = led.partition, led.log, place_of_partition(led.partition)
    listed = await objects_of(place)
    await topic.catch_up(place)
    segments = topic.segments(place.topic_id, place.partition)
    if segments is None or not led.still_holds:
        return
    before = log.log_start_offset
    first = first_readable(log, segments, [each for each in listed if each.segment_id not in segments.by_id])
    if advance_log_start_offset(log, first):
        logger.warning(
            "%s starts at %d and not at %d: neither remote storage nor this disk has what lies between. Another leader has deleted it, and"
            " this replica had not learned of that",
            partition,
            first,
            before,
        )
