"""BeginQuorumEpoch: the quorum's new leader makes itself known (KIP-595).

v1 adds the voter key and the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import Listener, NodeEndpoint, TopicDataResponse
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class PartitionDataRequest:
    partition_index: int32 = 0
    voter_directory_id: uuid = v("1+", default=ZERO_UUID, ignorable=True)
    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class TopicDataRequest:
    topic_name: str = ""
    partitions: list[PartitionDataRequest] = v(default=[])


@api_message(53)
class BeginQuorumEpochRequest:
    cluster_id: str | None = None
    voter_id: int32 = v("1+", default=-1, ignorable=True)
    topics: list[TopicDataRequest] = v(default=[])
    leader_endpoints: list[Listener] = v("1+", default=[], ignorable=True)


@api_message(53)
class BeginQuorumEpochResponse:
    error_code: int16 = 0
    topics: list[TopicDataResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v("1+", tag=0, default=[])
