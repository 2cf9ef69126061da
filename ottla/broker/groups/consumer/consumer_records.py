"""Records of consumer groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.consumer.consumer_member import CurrentAssignment, ResolvedRegex
from ottla.broker.groups.modern.assignment import Assignment, structs_of
from ottla.broker.groups.modern.modern_records import ModernRecords
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions

RECORDS = ModernRecords(
    group=ConsumerGroupMetadataKey,
    member=ConsumerGroupMemberMetadataKey,
    assignment_epoch=ConsumerGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=ConsumerGroupTargetAssignmentMetadataValue,
    target=ConsumerGroupTargetAssignmentMemberKey,
    current=ConsumerGroupCurrentMemberAssignmentKey,
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(structs_of(target, TopicIdPartitions))
    return RECORDS.target_record(group_id, member_id, value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    return RECORDS.current_record(group_id, member_id, current.value())


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms)
    return ConsumerGroupRegularExpressionKey(group_id, expression), value
