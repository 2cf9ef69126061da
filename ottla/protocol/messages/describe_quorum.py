"""DescribeQuorum: leader, voters and observers of the quorum (KIP-595).

v1 adds fetch times (KIP-836); v2 directory ids, endpoints and error messages (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class TopicDataRequest:
    topic_name: str = ""
    partitions: list[PartitionIndex] = v(default=[])


@api_message(55)
class DescribeQuorumRequest:
    topics: list[TopicDataRequest] = v(default=[])


@struct
class ReplicaState:
    replica_id: int32 = 0
    replica_directory_id: uuid = v("2+", default=ZERO_UUID)
    log_end_offset: int64 = 0
    last_fetch_timestamp: int64 = v("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int64 = v("1+", default=-1, ignorable=True)


@struct
class PartitionDataResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = v("2+", default="", ignorable=True)
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    high_watermark: int64 = 0
    current_voters: list[ReplicaState] = v(default=[])
    observers: list[ReplicaState] = v(default=[])


@struct
class TopicDataResponse:
    topic_name: str = ""
    partitions: list[PartitionDataResponse] = v(default=[])


@struct
class Node:
    node_id: int32 = 0
    listeners: list[Listener] = v(default=[])


@api_message(55)
class DescribeQuorumResponse:
    error_code: int16 = 0
    error_message: str | None = v("2+", default="", ignorable=True)
    topics: list[TopicDataResponse] = v(default=[])
    nodes: list[Node] = v("2+", default=[])
