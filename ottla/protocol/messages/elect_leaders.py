"""ElectLeaders: elect preferred leaders, or unclean ones.

v1 adds the election type (KIP-460).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(43)
class ElectLeadersRequest:
    election_type: int8 = v("1+", default=0)
    topic_partitions: list[TopicNamePartitions] | None = v(default=[])
    timeout_ms: int32 = 60000


@struct
class PartitionResult:
    partition_id: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@struct
class ReplicaElectionResult:
    topic: str = ""
    partition_result: list[PartitionResult] = v(default=[])


@api_message(43)
class ElectLeadersResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = v("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = v(default=[])
