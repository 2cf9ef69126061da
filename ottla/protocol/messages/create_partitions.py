"""CreatePartitions: add partitions to topics (KIP-195).

v3 may be throttled (KIP-599).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int32] = v(default=[])


@struct
class CreatePartitionsTopic:
    name: str = ""
    count: int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = v(default=[])


@api_message(37)
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = v(default=[])
    timeout_ms: int32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopicResult:
    name: str = ""
    error_code: int16 = 0
    error_message: str | None = None


@api_message(37)
class CreatePartitionsResponse:
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = v(default=[])
