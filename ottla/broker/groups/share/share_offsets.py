"""AlterShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups: what the group decides before and after the persister's part.

Each is two decisions: the first one writes down which share partitions the persister is asked about, the second what came of it.
If the coordinator moves in between, the client asks again, and the first decision finds the partitions where they were left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import without_empty
from ottla.broker.groups.share import initialize
from ottla.broker.groups.state.share_group import ShareGroup, new_share_group, state_partitions_record
from ottla.broker.share.persister import Persister
from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.network.reply import Reply

Partition: TypeAlias = tuple[bytes, int]
NOT_HOSTED = "This server does not host this topic-partition."


class Altered(NamedTuple):
    """The response if the persister can do it all, the state epoch, and the start offset of each share partition."""

    response: AlterShareGroupOffsetsResponse
    state_epoch: int = 0
    start_offsets: Mapping[Partition, int] = {}
    error: KafkaError | None = None


class Deleted(NamedTuple):
    """Share partitions whose state is to be deleted, by group, and the rows of topics that have none."""

    partitions: Mapping[str, frozenset[Partition]] = {}
    rejected: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()
    names: Mapping[bytes, str] = {}
    error: KafkaError | None = None

    def calls(self, group_id: str, persister: Persister) -> dict[Partition, Reply[None]]:
        """Ask the persister to delete the states of a group."""
        return {
            partition: persister.delete(SharePartitionKey(group_id, *partition))
            for partition in sorted(self.partitions.get(group_id, ()))
        }


class Initialized(NamedTuple):
    """The share partitions whose offsets can be described."""

    partitions: Mapping[bytes, frozenset[int]] = {}
    error: KafkaError | None = None


# ---- alter


def alter(shard: GroupMetadataManager, now_ms: int, request: AlterShareGroupOffsetsRequest) -> Outcome[Altered]:
    """A new epoch of the group is the state epoch: it fences leaders that have the former state.

    A group that does not exist is created, so that offsets can be set before its first member joins.
    """
    group = shard.group_or_new(ShareGroup, request.group_id, new_share_group)
    group.validate_delete()
    start_offsets: dict[Partition, int] = {}
    rows = [_altered_topic(shard, topic, start_offsets) for topic in request.topics]
    altered = Altered(AlterShareGroupOffsetsResponse(responses=rows), group.epoch + 1, start_offsets)
    if not start_offsets:
        return Outcome(response=altered)
    partitions = by_topic(start_offsets)

    def begun() -> Outcome[Altered]:
        initialize.remember(shard.group(ShareGroup, group.group_id), partitions, now_ms)
        return Outcome()

    records = [
        group.next_epoch(group.metadata_hash),
        initialize.begun(group, shard.cluster.topics(), partitions),
    ]
    return Outcome(records, altered, then=begun)


def _altered_topic(
    shard: GroupMetadataManager, topic: AlterShareGroupOffsetsRequestTopic, start_offsets: dict[Partition, int]
) -> AlterShareGroupOffsetsResponseTopic:
    known = shard.cluster.topics().by_name(topic.topic_name)
    rows = []
    for partition in topic.partitions:
        row = AlterShareGroupOffsetsResponsePartition(partition.partition_index)
        if known is None or partition.partition_index not in known.partitions:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = NOT_HOSTED
        elif partition.start_offset < 0:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, "The start offset cannot be negative."
        else:
            start_offsets[(known.id, partition.partition_index)] = partition.start_offset
        rows.append(row)
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID if known is None else known.id, rows)


def altered(
    shard: GroupMetadataManager, now_ms: int, group_id: str, result: Altered, errors: Mapping[Partition, KafkaError]
) -> Outcome[AlterShareGroupOffsetsResponse]:
    done = by_topic(result.start_offsets.keys() - errors.keys())
    outcome = initialize.ended(shard, now_ms, group_id, done, by_topic(errors))
    for topic in result.response.responses:
        for row in topic.partitions:
            if (error := errors.get((topic.topic_id, row.partition_index))) is not None:
                row.error_code, row.error_message = error.code, error.message
    return Outcome(outcome.records, result.response, then=outcome.then)


# ---- delete


def delete(shard: GroupMetadataManager, now_ms: int, group_id: str, topic_names: Iterable[str]) -> Outcome[Deleted]:
    """A topic that is being deleted is deleted again: nothing is known of the former attempt."""
    group = shard.group(ShareGroup, group_id)
    group.validate_delete()
    state, topics = group.state_partitions, shard.cluster.topics()
    partitions: dict[bytes, frozenset[int]] = {}
    rejected, names = [], {}
    for name in topic_names:
        topic = topics.by_name(name)
        if topic is None:
            message = NOT_HOSTED
        elif topic.id in state.initialized:
            partitions[topic.id], names[topic.id] = state.initialized[topic.id], name
            continue
        elif topic.id in state.deleting:
            partitions[topic.id], names[topic.id] = frozenset(topic.partitions), name
            continue
        else:
            message = "There is no offset information to delete."
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rejected.append(DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=error, error_message=message))
    deleted = Deleted({group_id: _pairs(partitions)}, rejected, names)
    if not partitions:
        return Outcome(response=deleted)
    return Outcome([state_partitions_record(group_id, state.deletion_begun(partitions))], deleted)


def deleted(
    shard: GroupMetadataManager, now_ms: int, group_id: str, result: Deleted, errors: Mapping[Partition, KafkaError]
) -> Outcome[DeleteShareGroupOffsetsResponse]:
    """Topics of which a share partition could not be deleted go on being deleted."""
    failed = {topic_id: error for (topic_id, _), error in errors.items()}
    done = [topic_id for topic_id in result.names if topic_id not in failed]
    rows = [DeleteShareGroupOffsetsResponseTopic(result.names[topic_id], topic_id) for topic_id in done]
    rows += result.rejected
    rows += [
        DeleteShareGroupOffsetsResponseTopic(result.names[topic_id], topic_id, error.code, error.message)
        for topic_id, error in failed.items()
    ]
    response = DeleteShareGroupOffsetsResponse(responses=rows)
    group = shard.find(ShareGroup, group_id)
    if group is None or not done:
        return Outcome(response=response)
    following = group.state_partitions.without_topics(done)
    return Outcome([state_partitions_record(group_id, following)], response)


def begin_deletion(shard: GroupMetadataManager, now_ms: int, group_ids: Iterable[str]) -> Outcome[Deleted]:
    """DeleteGroups: the states of those groups that are empty share groups. Of the others the deletion itself says what is wrong."""
    partitions: dict[str, frozenset[Partition]] = {}
    records: list[CoordinatorRecord] = []
    topics = shard.cluster.topics()
    for group_id in group_ids:
        group = shard.find(ShareGroup, group_id)
        if group is None or group.members or group_id in shard.unreadable:
            continue
        state = group.state_partitions
        held = {
            topic_id: state.initialized.get(topic_id, frozenset()) | state.initializing.get(topic_id, frozenset())
            for topic_id in state.initialized.keys() | state.initializing.keys() | state.deleting
        }
        for topic_id in held:
            topic = topics.by_id(topic_id)
            # The share coordinators delete the states of deleted topics by themselves.
            if topic is None:
                held[topic_id] = frozenset()
            elif topic_id in state.deleting:
                held[topic_id] = frozenset(topic.partitions)
        partitions[group_id] = _pairs(without_empty(held))
        if state.initialized or state.initializing:
            records.append(state_partitions_record(group_id, state.deletion_begun(held)))
    return Outcome(records, Deleted(partitions))


def initialized(shard: GroupMetadataManager, group_id: str) -> Initialized:
    """None of a group that is not there, as in Kafka."""
    group = shard.find(ShareGroup, group_id)
    return Initialized() if group is None else Initialized(group.state_partitions.initialized)


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(its_partitions) for topic_id, its_partitions in found.items()}


def _pairs(assignment: Mapping[bytes, frozenset[int]]) -> frozenset[Partition]:
    return frozenset((topic_id, partition) for topic_id, p in assignment.items() for partition in p)
