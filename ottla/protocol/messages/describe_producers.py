"""DescribeProducers: producers that a partition knows, and their open transactions (KIP-664)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(61)
class DescribeProducersRequest:
    topics: list[TopicPartitionIndexes] = v(default=[])


@struct
class ProducerState:
    producer_id: int64 = 0
    producer_epoch: int32 = 0
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1


@struct
class PartitionResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = v(default=[])


@struct
class TopicResponse:
    name: str = ""
    partitions: list[PartitionResponse] = v(default=[])


@api_message(61)
class DescribeProducersResponse:
    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = v(default=[])
