"""Records of share groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.assignment import Assignment, structs_of
from ottla.broker.groups.share.group import Member, ShareGroup, StatePartitions
from ottla.protocol.internal_topics.consumer_group_records import TopicPartition
from ottla.protocol.internal_topics.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareGroupTopicPartitions,
    ShareTopicInfo,
    TopicPartitionsInfo,
)

ShareKey: TypeAlias = (
    ShareGroupMetadataKey
    | ShareGroupMemberMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash)


def member_record(group_id: str, member_id: str, value: ShareGroupMemberMetadataValue) -> CoordinatorRecord:
    return ShareGroupMemberMetadataKey(group_id, member_id), value


def assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    return ShareGroupTargetAssignmentMetadataKey(group_id), ShareGroupTargetAssignmentMetadataValue(epoch, now_ms)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMemberValue(structs_of(target, TopicPartition))
    return ShareGroupTargetAssignmentMemberKey(group_id, member_id), value


def current_record(group_id: str, member: Member, epoch: int, assigned: Assignment) -> CoordinatorRecord:
    """The member's next epoch; it is known by the one before once more, as it may miss the answer."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=member.epoch,
        assigned_partitions=structs_of(assigned, ShareGroupTopicPartitions),
    )
    return ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value


def state_partitions_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    def info(topic_id: bytes, partitions: list[int]) -> TopicPartitionsInfo:
        return TopicPartitionsInfo(topic_id, state.names.get(topic_id, ""), partitions)

    value = ShareGroupStatePartitionMetadataValue(
        structs_of(state.initializing, info),
        structs_of(state.initialized, info),
        [ShareTopicInfo(topic_id, state.names.get(topic_id, "")) for topic_id in sorted(state.deleting)],
    )
    return ShareGroupStatePartitionMetadataKey(group_id), value


def member_tombstones(group_id: str, member_id: str) -> Iterator[CoordinatorRecord]:
    yield ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None
    yield ShareGroupTargetAssignmentMemberKey(group_id, member_id), None
    yield ShareGroupMemberMetadataKey(group_id, member_id), None


def group_tombstones(group: ShareGroup) -> Iterator[CoordinatorRecord]:
    for member_id in group.members:
        yield from member_tombstones(group.group_id, member_id)
    yield ShareGroupTargetAssignmentMetadataKey(group.group_id), None
    yield ShareGroupStatePartitionMetadataKey(group.group_id), None
    yield ShareGroupMetadataKey(group.group_id), None
