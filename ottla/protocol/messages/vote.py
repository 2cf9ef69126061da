"""Vote: a candidate of the quorum asks for a vote (KIP-595).

v1 adds directory ids (KIP-853); v2 pre-votes (KIP-996).
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import NodeEndpoint
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class PartitionDataRequest:
    partition_index: int32 = 0
    replica_epoch: int32 = 0
    replica_id: int32 = 0
    replica_directory_id: uuid = v("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: uuid = v("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int32 = 0
    last_offset: int64 = 0
    pre_vote: bool = v("2+", default=False)


@struct
class TopicDataRequest:
    topic_name: str = ""
    partitions: list[PartitionDataRequest] = v(default=[])


@api_message(52)
class VoteRequest:
    cluster_id: str | None = None
    voter_id: int32 = v("1+", default=-1, ignorable=True)
    topics: list[TopicDataRequest] = v(default=[])


@struct
class PartitionDataResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    vote_granted: bool = False


@struct
class TopicDataResponse:
    topic_name: str = ""
    partitions: list[PartitionDataResponse] = v(default=[])


@api_message(52)
class VoteResponse:
    error_code: int16 = 0
    topics: list[TopicDataResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v("1+", tag=0, default=[])
