"""Produce: append batches to partitions.

v3 adds the transactional id; v5 log start offset; v7 allows zstd (KIP-110); v8 record errors (KIP-467); v10 names
the new leader (KIP-951); v12 joins partitions to the transaction by itself (KIP-890); v13 topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.schema import ZERO_UUID, RequestRecords, api_message, int16, int32, int64, struct, uuid, v


@struct
class PartitionProduceData:
    index: int32 = 0
    records: RequestRecords | None = None


@struct
class TopicProduceData:
    name: str = v("0-12", default="", ignorable=True)
    topic_id: uuid = v("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = v(default=[])


@api_message(0)
class ProduceRequest:
    transactional_id: str | None = v("3+", default=None)
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = v(default=[])


@struct
class BatchIndexAndErrorMessage:
    batch_index: int32 = 0
    batch_index_error_message: str | None = None


@struct
class PartitionProduceResponse:
    index: int32 = 0
    error_code: int16 = 0
    base_offset: int64 = 0
    log_append_time_ms: int64 = v("2+", default=-1, ignorable=True)
    log_start_offset: int64 = v("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = v("8+", default=[], ignorable=True)
    error_message: str | None = v("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = v("10+", tag=0, factory=LeaderIdAndEpoch)


@struct
class TopicProduceResponse:
    name: str = v("0-12", default="", ignorable=True)
    topic_id: uuid = v("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = v(default=[])


@api_message(0)
class ProduceResponse:
    responses: list[TopicProduceResponse] = v(default=[])
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = v("10+", tag=0, default=[])
