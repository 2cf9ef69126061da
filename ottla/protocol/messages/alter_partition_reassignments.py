"""AlterPartitionReassignments: start or cancel moving partitions (KIP-455).

v1 can forbid changing the replication factor.
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@struct
class ReassignablePartition:
    partition_index: int32 = 0
    replicas: list[int32] | None = None


@struct
class ReassignableTopic:
    name: str = ""
    partitions: list[ReassignablePartition] = v(default=[])


@api_message(45)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    allow_replication_factor_change: bool = v("1+", default=True)
    topics: list[ReassignableTopic] = v(default=[])


@struct
class ReassignablePartitionResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@struct
class ReassignableTopicResponse:
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = v(default=[])


@api_message(45)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = v("1+", default=True, ignorable=True)
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = v(default=[])
