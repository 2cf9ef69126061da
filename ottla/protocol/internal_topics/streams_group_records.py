"""Keys and values of the records of streams groups (KIP-1071) in `__consumer_offsets`. Type 18 was never released."""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.messages.shared_structs import Endpoint, KeyValue, Subtopology, TaskIds
from ottla.protocol.schema import int8, int32, int64, message, struct, v


@message(key=17, versions="0", flexible="none")
class StreamsGroupMetadataKey:
    group_id: str = ""


@message(key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: int32 = 0
    metadata_hash: int64 = 0
    validated_topology_epoch: int32 = v(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = v(tag=1, default=[])
    stored_description_topology_epoch: int32 = v(tag=2, default=-1)
    failed_description_topology_epoch: int32 = v(tag=3, default=-1)


@message(key=19, versions="0", flexible="none")
class StreamsGroupMemberMetadataKey:
    group_id: str = ""
    member_id: str = ""


@message(key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = v(default=[])


@message(key=20, versions="0", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: str = ""


@message(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = v(tag=0, default=0)


@message(key=21, versions="0", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: str = ""
    member_id: str = ""


@message(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[TaskIds] = v(default=[])
    standby_tasks: list[TaskIds] = v(default=[])
    warmup_tasks: list[TaskIds] = v(default=[])


@message(key=22, versions="0", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: str = ""
    member_id: str = ""


@struct
class CurrentTaskIds:
    subtopology_id: str = ""
    partitions: list[int32] = v(default=[])
    assignment_epochs: list[int32] | None = v(tag=0, default=[])


@message(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    active_tasks: list[CurrentTaskIds] = v(default=[])
    standby_tasks: list[CurrentTaskIds] = v(default=[])
    warmup_tasks: list[CurrentTaskIds] = v(default=[])
    active_tasks_pending_revocation: list[CurrentTaskIds] = v(default=[])
    standby_tasks_pending_revocation: list[CurrentTaskIds] = v(default=[])
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = v(default=[])


@message(key=23, versions="0", flexible="none")
class StreamsGroupTopologyKey:
    group_id: str = ""


@message(key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: int32 = 0
    subtopologies: list[Subtopology] = v(default=[])


STREAMS_GROUP_RECORDS: RecordTypes = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
