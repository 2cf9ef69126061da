"""Records of share groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.assignment import Assignment, structs_of
from ottla.broker.groups.modern.modern_records import ModernRecords
from ottla.broker.groups.share.share_member import Member
from ottla.broker.groups.share.state_partitions import StatePartitions
from ottla.protocol.internal_topics.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicInfo,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicPartitions

RECORDS = ModernRecords(
    group=ShareGroupMetadataKey,
    member=ShareGroupMemberMetadataKey,
    assignment_epoch=ShareGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=ShareGroupTargetAssignmentMetadataValue,
    target=ShareGroupTargetAssignmentMemberKey,
    current=ShareGroupCurrentMemberAssignmentKey,
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMemberValue(structs_of(target, TopicIdPartitions))
    return RECORDS.target_record(group_id, member_id, value)


def current_record(group_id: str, member: Member, epoch: int, assigned: Assignment) -> CoordinatorRecord:
    """The member's next epoch; it is known by the one before once more, as it may miss the answer."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=member.current.epoch,
        assigned_partitions=structs_of(assigned, TopicIdPartitions),
    )
    return RECORDS.current_record(group_id, member.member_id, value)


def state_partitions_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    def info(topic_id: bytes, partitions: list[int]) -> TopicPartitions:
        return TopicPartitions(topic_id, state.names.get(topic_id, ""), partitions)

    value = ShareGroupStatePartitionMetadataValue(
        structs_of(state.initializing, info),
        structs_of(state.initialized, info),
        [ShareTopicInfo(topic_id, state.names.get(topic_id, "")) for topic_id in sorted(state.deleting)],
    )
    return ShareGroupStatePartitionMetadataKey(group_id), value
