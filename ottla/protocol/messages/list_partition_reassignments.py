"""ListPartitionReassignments: the moves of partitions under way (KIP-455)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(46)
class ListPartitionReassignmentsRequest:
    timeout_ms: int32 = 60000
    topics: list[TopicPartitionIndexes] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: int32 = 0
    replicas: list[int32] = v(default=[])
    adding_replicas: list[int32] = v(default=[])
    removing_replicas: list[int32] = v(default=[])


@struct
class OngoingTopicReassignment:
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = v(default=[])


@api_message(46)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = v(default=[])
