"""Records of consumer groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.broker.groups.consumer.member import CurrentAssignment
from ottla.broker.groups.modern.assignment import Assignment, structs_of
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash)


def member_record(group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue) -> CoordinatorRecord:
    return ConsumerGroupMemberMetadataKey(group_id, member_id), value


def assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch, now_ms)
    return ConsumerGroupTargetAssignmentMetadataKey(group_id), value


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(structs_of(target, TopicPartition))
    return ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), current.value()


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms)
    return ConsumerGroupRegularExpressionKey(group_id, expression), value


def member_tombstones(group_id: str, member_id: str) -> Iterator[CoordinatorRecord]:
    yield ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None
    yield ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None
    yield ConsumerGroupMemberMetadataKey(group_id, member_id), None


def group_tombstones(group: ConsumerGroup) -> Iterator[CoordinatorRecord]:
    for member_id in group.members:
        yield from member_tombstones(group.group_id, member_id)
    for expression in group.regexes:
        yield regex_record(group.group_id, expression, None)
    yield ConsumerGroupTargetAssignmentMetadataKey(group.group_id), None
    yield ConsumerGroupMetadataKey(group.group_id), None
