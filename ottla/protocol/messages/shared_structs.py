"""Structs that messages of several APIs have in common, field by field and default by default."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, int8, int16, int32, int64, struct, uint16, uuid, v


@struct
class NodeEndpoint:
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class AcknowledgementBatch:
    first_offset: int64 = 0
    last_offset: int64 = 0
    acknowledge_types: list[int8] = v(default=[])


@struct
class StateBatch:
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0
    delivery_count: int16 = 0


@struct
class TopicPartitions:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = v(default=[])


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = v(default=[])


@struct
class KeyValue:
    key: str = ""
    value: str = ""


@struct
class Endpoint:
    host: str = ""
    port: uint16 = 0


@struct
class TaskIds:
    subtopology_id: str = ""
    partitions: list[int32] = v(default=[])


@struct
class TaskOffset:
    subtopology_id: str = ""
    partition: int32 = 0
    offset: int64 = 0


@struct
class TopicInfo:
    name: str = ""
    partitions: int32 = 0
    replication_factor: int16 = 0
    topic_configs: list[KeyValue] = v(default=[])


@struct
class TopologyDescriptionNode:
    name: str = ""
    node_type: int8 = 0
    source_topics: list[str] = v(default=[])
    sink_topic: str | None = None
    stores: list[str] = v(default=[])
    successors: list[str] = v(default=[])


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = ""
    nodes: list[TopologyDescriptionNode] = v(default=[])


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = v(factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = v(factory=TopologyDescriptionNode)


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = v(default=[])
    global_stores: list[TopologyDescriptionGlobalStore] = v(default=[])


@struct
class EntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@struct
class AlterConfigsResourceResponse:
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""


@struct
class Listener:
    name: str = ""
    host: str = ""
    port: uint16 = 0
    security_protocol: int16 = 0


@struct
class Feature:
    name: str = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


@struct
class PartitionErrorCode:
    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class TopicPartitionErrors:
    name: str = ""
    partitions: list[PartitionErrorCode] = v(default=[])


@struct
class TopicIdPartitions:
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = v(default=[])


@struct
class TopicIdAssignment:
    topic_partitions: list[TopicIdPartitions] = v(default=[])


@struct
class TopicNamePartitions:
    topic: str = ""
    partitions: list[int32] = v(default=[])


@struct
class TopicPartitionIndexes:
    name: str = ""
    partition_indexes: list[int32] = v(default=[])


@struct
class PartitionIndex:
    partition_index: int32 = 0


@struct
class TokenPrincipal:
    principal_type: str = ""
    principal_name: str = ""


@struct
class SharePartitionResult:
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


@struct
class ShareStateResult:
    topic_id: uuid = ZERO_UUID
    partitions: list[SharePartitionResult] = v(default=[])


@struct
class ReadStatePartition:
    partition: int32 = 0
    leader_epoch: int32 = 0


@struct
class ReadStateTopic:
    topic_id: uuid = ZERO_UUID
    partitions: list[ReadStatePartition] = v(default=[])


@struct
class CurrentLeader:
    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class AcknowledgePartition:
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = v(default=[])


@struct
class AcknowledgeTopic:
    topic_id: uuid = ZERO_UUID
    partitions: list[AcknowledgePartition] = v(default=[])


@struct
class CopartitionGroup:
    source_topics: list[int16] = v(default=[])
    source_topic_regex: list[int16] = v(default=[])
    repartition_source_topics: list[int16] = v(default=[])


@struct
class Subtopology:
    subtopology_id: str = ""
    source_topics: list[str] = v(default=[])
    source_topic_regex: list[str] = v(default=[])
    state_changelog_topics: list[TopicInfo] = v(default=[])
    repartition_sink_topics: list[str] = v(default=[])
    repartition_source_topics: list[TopicInfo] = v(default=[])
    copartition_groups: list[CopartitionGroup] = v(default=[])


@struct
class ClassicProtocol:
    name: str = ""
    metadata: bytes = b""
