"""EndQuorumEpoch: the quorum's leader resigns (KIP-595).

v1 names preferred candidates with directory ids and adds endpoints (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import Listener, NodeEndpoint, TopicDataResponse
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class ReplicaInfo:
    candidate_id: int32 = 0
    candidate_directory_id: uuid = ZERO_UUID


@struct
class PartitionDataRequest:
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    preferred_successors: list[int32] = v("0", default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = v("1+", default=[], ignorable=True)


@struct
class TopicDataRequest:
    topic_name: str = ""
    partitions: list[PartitionDataRequest] = v(default=[])


@api_message(54)
class EndQuorumEpochRequest:
    cluster_id: str | None = None
    topics: list[TopicDataRequest] = v(default=[])
    leader_endpoints: list[Listener] = v("1+", default=[], ignorable=True)


@api_message(54)
class EndQuorumEpochResponse:
    error_code: int16 = 0
    topics: list[TopicDataResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v("1+", tag=0, default=[])
