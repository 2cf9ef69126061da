"""StreamsGroupTopologyDescriptionUpdate: a member hands in a description of its topology (KIP-1331)."""

from __future__ import annotations

from ottla.protocol.schema import int8, int16, int32, message, struct, v


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


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str = ""
    member_id: str = ""
    topology_epoch: int32 = 0
    topology_description: TopologyDescription = v(factory=TopologyDescription)


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
