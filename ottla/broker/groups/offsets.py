"""Committing, fetching and deleting offsets: decisions over the committed ones. Nothing here changes them.

Names and ids of topics were resolved before: a request's topics carry both where both are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Producer, Unasked
from ottla.broker.coordinator.timers import sweep, sweep_soon
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import PREPARING_REBALANCE, STABLE
from ottla.broker.groups.committed import NO_TIMESTAMP, Topics
from ottla.broker.groups.group import commit_of, offset_commit_record
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import OffsetCommitValue
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponseTopic
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode, TopicPartitionErrors
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID

TopicT = TypeVar("TopicT")

# OffsetCommit reports a missing group by an error code that its clients know.
GROUP_ID_NOT_FOUND_SINCE = 9


# ---- commit


def commit(
    shard: GroupMetadataManager, now_ms: int, request: OffsetCommitRequest, api_version: int
) -> Outcome[OffsetCommitResponse]:
    _validate_commit(shard, request, api_version)
    group = shard.find(ClassicGroup, request.group_id)
    if group is not None and group.state in (STABLE, PREPARING_REBALANCE):
        # A commit is as good as a heartbeat; members of other groups send heartbeats anyway.
        rebalance.restart_session(shard, group, group.members[request.member_id])
    expire_ms = NO_TIMESTAMP if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
    records, topics = _committed(shard, now_ms, request, OffsetCommitResponseTopic, expire_ms)
    shard.counts.offset_commits += len(records)
    return Outcome(records, OffsetCommitResponse(topics=topics))


def commit_transactional(
    shard: GroupMetadataManager, now_ms: int, request: TxnOffsetCommitRequest
) -> Outcome[TxnOffsetCommitResponse]:
    """Commit offsets that stay apart until the producer's marker (KIP-98)."""
    _validate_commit(shard, request, None)
    records, topics = _committed(shard, now_ms, request, TxnOffsetCommitResponseTopic, NO_TIMESTAMP)
    producer = Producer(request.producer_id, request.producer_epoch)
    return Outcome(records, TxnOffsetCommitResponse(topics=topics), producer=producer)


def _committed(
    shard: GroupMetadataManager,
    now_ms: int,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    topic_row: Callable[[str, bytes, list[PartitionErrorCode]], TopicT],
    expire_ms: int,
) -> tuple[list[CoordinatorRecord], list[TopicT]]:
    """Return one record for each partition whose metadata is not too long, and the rows of the response."""
    metadata_max = shard.config.offset_metadata_max_bytes
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            if len(metadata) > metadata_max:
                partitions.append(PartitionErrorCode(partition.partition_index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            partitions.append(PartitionErrorCode(partition.partition_index, ErrorCode.NONE))
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_ms,
                topic_id=topic.topic_id,
            )
            records.append(offset_commit_record(request.group_id, topic.name, partition.partition_index, value))
        topics.append(topic_row(topic.name, topic.topic_id, partitions))
    return records, topics


def _validate_commit(
    shard: GroupMetadataManager, request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int | None
) -> None:
    """Check that the group lets the member commit; `version` is that of OffsetCommit, and None for TxnOffsetCommit."""
    group = shard.groups.get(request.group_id)
    if group is not None:
        group.validate_offset_commit(commit_of(request, version))
    elif request.generation_id_or_member_epoch < 0:
        # A "simple" group: replaying its first offset creates it.
        shard.check_room(request.group_id)
    elif version is None or version < GROUP_ID_NOT_FOUND_SINCE:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    else:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)


# ---- fetch


def fetch(
    shard: GroupMetadataManager, request: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Return the committed offset of each requested partition, -1 if it has none; of all that have one if `topics` is None."""
    offsets = _readable_offsets(shard, request)
    wanted: Iterable[tuple[str, bytes, Iterable[int]]]
    if request.topics is None:
        wanted = [(name, ZERO_UUID, list(partitions)) for name, partitions in offsets.items()]
    else:
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
    pending = shard.offsets.pending_partitions(request.group_id) if require_stable else ()
    topics = []
    for name, topic_id, indexes in wanted:
        known = offsets.get(name, {})
        partitions = []
        for index in indexes:
            if pending and (name, index) in pending:
                partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            offset = known.get(index)
            # The offset may have been committed for a topic of the same name that was deleted since.
            if offset is None or (ZERO_UUID not in (topic_id, offset.topic_id) and offset.topic_id != topic_id):
                partitions.append(_no_offset(index))
            else:
                partitions.append(
                    OffsetFetchResponsePartitions(index, offset.offset, offset.leader_epoch, offset.metadata)
                )
        topics.append(OffsetFetchResponseTopics(name, topic_id, partitions))
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _readable_offsets(shard: GroupMetadataManager, request: OffsetFetchRequestGroup) -> Topics:
    """Return the group's offsets. As in Kafka, a group that is not found has none, nor has one of a kind that commits none."""
    group = shard.groups.get(request.group_id)
    if group is None:
        return {}
    try:
        group.validate_offset_fetch(request.member_id, request.member_epoch)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return shard.offsets.of_group(request.group_id)


def _no_offset(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, -1, -1, "", error)


# ---- delete


def delete(shard: GroupMetadataManager, now_ms: int, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
    """Write tombstones of the existing offsets; topics that the group subscribes to are rejected (KIP-496)."""
    group = shard.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.validate_offset_delete()
    pending = shard.offsets.pending_partitions(request.group_id)
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        indexes = [partition.partition_index for partition in topic.partitions]
        if error == ErrorCode.NONE:
            records.extend(
                offset_commit_record(request.group_id, topic.name, index, None)
                for index in indexes
                if (topic.name, index) in pending or shard.offsets.get(request.group_id, topic.name, index) is not None
            )
        rows = [PartitionErrorCode(index, error) for index in indexes]
        topics.append(TopicPartitionErrors(topic.name, rows))
    shard.counts.offset_deletions += len(records)
    return Outcome(records, OffsetDeleteResponse(topics=topics))


def tombstones(shard: GroupMetadataManager, group_id: str) -> list[CoordinatorRecord]:
    """Return one tombstone for each offset of a group, also for pending ones."""
    partitions = {
        (topic, partition): None for topic, known in shard.offsets.of_group(group_id).items() for partition in known
    }
    partitions.update(dict.fromkeys(shard.offsets.pending_partitions(group_id)))
    return [offset_commit_record(group_id, topic, partition, None) for topic, partition in partitions]


def on_topics_deleted(shard: GroupMetadataManager, now_ms: int, names: frozenset[str]) -> Unasked:
    """Delete the offsets of deleted topics: a new topic of the same name starts without offsets.

    Offsets that are committed from now on are for that new topic, and the sweep keeps them even if it comes to them later.
    """
    newest_offset = shard.newest_offset
    offsets = shard.offsets

    def look(group_id: str, records: list[CoordinatorRecord]) -> int:
        gone = dict.fromkeys(
            (topic, partition)
            for topic, partition, offset in offsets.of_topics(group_id, names)
            if offset.record_offset <= newest_offset
        )
        records.extend(offset_commit_record(group_id, topic, partition, None) for topic, partition in gone)
        return 1 + len(offsets.of_group(group_id)) + len(offsets.pending_partitions(group_id)) + len(gone)

    return sweep_soon(shard.timers, ("topics-deleted", newest_offset, names), offsets.group_ids, look)


def delete_of_unknown_topics(shard: GroupMetadataManager) -> Unasked:
    """Delete, after loading, the offsets of topics that were deleted while the partition had no coordinator.

    The metadata here is at least as new as this broker's election, and the brokers that took the commits had resigned before
    it. So a topic id that is unknown here belongs to a deleted topic. Records before v4 have no topic id.
    """
    newest_offset = shard.newest_offset

    def look(group_id: str, records: list[CoordinatorRecord]) -> int:
        records.extend(
            offset_commit_record(group_id, topic, partition, None)
            for topic, partitions in shard.offsets.of_group(group_id).items()
            for partition, offset in partitions.items()
            if offset.topic_id != ZERO_UUID
            and offset.record_offset <= newest_offset
            and not shard.topic_exists(offset.topic_id)
        )
        return 1 + shard.offsets.count(group_id)

    return sweep(shard.timers, "unknown-topics", iter(list(shard.offsets.groups)), look)
