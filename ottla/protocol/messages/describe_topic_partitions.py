"""DescribeTopicPartitions: topics page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class TopicRequest:
    name: str = ""


@struct
class Cursor:
    topic_name: str = ""
    partition_index: int32 = 0


@api_message(75)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = v(default=[])
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = -1
    replica_nodes: list[int32] = v(default=[])
    isr_nodes: list[int32] = v(default=[])
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32] = v(default=[])


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int16 = 0
    name: str | None = ""
    topic_id: uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = v(default=[])
    topic_authorized_operations: int32 = -0x8000_0000


@api_message(75)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = v(default=[])
    next_cursor: Cursor | None = None
