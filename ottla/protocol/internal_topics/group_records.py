"""Keys and values of the records in `__consumer_offsets`: committed offsets and groups of all types, and the table of them.

See coordinator_records.py for the frame. OffsetCommit v3 adds the leader epoch and v4 is flexible, with a tagged topic
id; GroupMetadata, of classic groups, v3 adds instance ids, v4 is flexible. Consumer groups are of KIP-848, share groups of
KIP-932, streams groups of KIP-1071. Types 9 and 18 were never released.
"""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.messages.shared_structs import (
    ClassicProtocol,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TopicIdPartitions,
    TopicPartitions,
)
from ottla.protocol.schema import ZERO_UUID, int8, int32, int64, message, struct, uuid, v


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitValue:
    offset: int64 = 0
    metadata: str = ""
    commit_timestamp: int64 = 0


@message(key=1, versions="0", flexible="none")
class OffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int64 = 0
    leader_epoch: int32 = v("3+", default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = v("1", default=-1, ignorable=True)
    topic_id: uuid = v("4+", tag=0, default=ZERO_UUID, ignorable=True)


@message(key=2, versions="0", flexible="none")
class GroupMetadataKey:
    group: str = ""


@struct
class MemberMetadata:
    member_id: str = ""
    group_instance_id: str | None = v("3+", default=None, ignorable=True)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int32 = v("1+", default=-1, ignorable=True)
    session_timeout: int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = v("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = v(default=[])


@message(key=3, versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str = ""


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int32 = 0
    metadata_hash: int64 = v(tag=0, default=0)


@message(key=4, versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: str = ""


@struct
class PartitionMetadata:
    partition: int32 = 0
    racks: list[str] = v(default=[])


@struct
class TopicMetadata:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: int32 = 0
    partition_metadata: list[PartitionMetadata] = v(default=[])


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = v(default=[])


@message(key=5, versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str = ""
    member_id: str = ""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int32 = 0
    supported_protocols: list[ClassicProtocol] = v(default=[])


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = v(default=[])
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = v(tag=0, factory=ClassicMemberMetadata)


@message(key=6, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = ""


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = v(tag=0, default=0)


@message(key=7, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = ""
    member_id: str = ""


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicIdPartitions] = v(default=[])


@message(key=8, versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = ""
    member_id: str = ""


@struct
class ConsumerGroupTopicPartitions:
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = v(default=[])
    assignment_epochs: list[int32] | None = v(tag=0, default=[])


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[ConsumerGroupTopicPartitions] = v(default=[])
    partitions_pending_revocation: list[ConsumerGroupTopicPartitions] = v(default=[])


@message(key=16, versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str = ""
    regular_expression: str = ""


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = v(default=[])
    version: int64 = 0
    timestamp: int64 = 0


@message(key=10, versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: str = ""
    member_id: str = ""


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = v(default=[])


@message(key=11, versions="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: str = ""


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int32 = 0
    metadata_hash: int64 = 0


@message(key=12, versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = ""


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = v(tag=0, default=0)


@message(key=13, versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = ""
    member_id: str = ""


@message(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicIdPartitions] = v(default=[])


@message(key=14, versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = ""
    member_id: str = ""


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicIdPartitions] = v(default=[])


@message(key=15, versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = ""


@struct
class ShareTopicInfo:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""


@message(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitions] = v(default=[])
    initialized_topics: list[TopicPartitions] = v(default=[])
    deleting_topics: list[ShareTopicInfo] = v(default=[])


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


GROUP_RECORDS: RecordTypes = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
