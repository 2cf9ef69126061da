"""StreamsGroupTopologyDescriptionUpdate: a member hands in a description of its topology (KIP-1331)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopologyDescription
from ottla.protocol.schema import api_message, int16, int32, v


@api_message(93)
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str = ""
    member_id: str = ""
    topology_epoch: int32 = 0
    topology_description: TopologyDescription = v(factory=TopologyDescription)


@api_message(93)
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
