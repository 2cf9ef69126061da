"""OffsetDelete: delete a group's offsets of some partitions (KIP-496). Never flexible."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import PartitionIndex, TopicPartitionErrors
from ottla.protocol.schema import api_message, int16, int32, struct, v


@struct
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: list[PartitionIndex] = v(default=[])


@api_message(47)
class OffsetDeleteRequest:
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = v(default=[])


@api_message(47)
class OffsetDeleteResponse:
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[TopicPartitionErrors] = v(default=[])
