"""Records of streams groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.member import CurrentAssignment
from ottla.broker.groups.streams.tasks import Tasks, structs_of
from ottla.protocol.internal_topics.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TargetTaskIds,
)


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[LastAssignmentConfig(key, configs[key]) for key in sorted(configs)],
    )
    return StreamsGroupMetadataKey(group_id), value


def next_epoch_record(group: StreamsGroup) -> CoordinatorRecord:
    """The group's next epoch, and everything else as it is."""
    return group_record(
        group.group_id, group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
    )


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    return StreamsGroupTopologyKey(group_id), value


def member_record(group_id: str, member_id: str, value: StreamsGroupMemberMetadataValue) -> CoordinatorRecord:
    return StreamsGroupMemberMetadataKey(group_id, member_id), value


def assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = StreamsGroupTargetAssignmentMetadataValue(epoch, now_ms)
    return StreamsGroupTargetAssignmentMetadataKey(group_id), value


def target_record(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    value = StreamsGroupTargetAssignmentMemberValue(
        structs_of(target.active, TargetTaskIds),
        structs_of(target.standby, TargetTaskIds),
        structs_of(target.warmup, TargetTaskIds),
    )
    return StreamsGroupTargetAssignmentMemberKey(group_id, member_id), value


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    return StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), current.value()


def member_tombstones(group_id: str, member_id: str) -> Iterator[CoordinatorRecord]:
    yield StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None
    yield StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None
    yield StreamsGroupMemberMetadataKey(group_id, member_id), None


def group_tombstones(group: StreamsGroup) -> Iterator[CoordinatorRecord]:
    """The group's own record is the last but one, as in Kafka: the topology of a group that is gone is skipped."""
    for member_id in group.members:
        yield from member_tombstones(group.group_id, member_id)
    yield StreamsGroupTargetAssignmentMetadataKey(group.group_id), None
    yield StreamsGroupMetadataKey(group.group_id), None
    yield StreamsGroupTopologyKey(group.group_id), None
