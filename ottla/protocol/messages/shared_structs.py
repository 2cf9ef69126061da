"""Structs that messages of several APIs have in common, field by field and default by default."""

from __future__ import annotations

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int8, int16, int32, int64, struct, uint16, uuid, v


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
