"""Keys and values of the records of consumer groups (KIP-848) in `__consumer_offsets`. Type 9 was never released."""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.messages.shared_structs import ClassicProtocol, TopicIdPartitions
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int8, int32, int64, message, struct, uuid, v


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


CONSUMER_GROUP_RECORDS: RecordTypes = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
