"""Records of streams groups, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.modern_records import ModernRecords
from ottla.broker.groups.streams.streams_member import CurrentAssignment
from ottla.broker.groups.streams.tasks import Tasks, structs_of
from ottla.protocol.internal_topics.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.messages.shared_structs import KeyValue, TaskIds

RECORDS = ModernRecords(
    group=StreamsGroupMetadataKey,
    member=StreamsGroupMemberMetadataKey,
    assignment_epoch=StreamsGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=StreamsGroupTargetAssignmentMetadataValue,
    target=StreamsGroupTargetAssignmentMemberKey,
    current=StreamsGroupCurrentMemberAssignmentKey,
)


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key, configs[key]) for key in sorted(configs)],
    )
    return StreamsGroupMetadataKey(group_id), value


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    return StreamsGroupTopologyKey(group_id), value


def target_record(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    value = StreamsGroupTargetAssignmentMemberValue(
        structs_of(target.active, TaskIds),
        structs_of(target.standby, TaskIds),
        structs_of(target.warmup, TaskIds),
    )
    return RECORDS.target_record(group_id, member_id, value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    return RECORDS.current_record(group_id, member_id, current.value())
