"""DeleteRecords: raise the log start offset of partitions (KIP-107)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@struct
class DeleteRecordsPartition:
    partition_index: int32 = 0
    offset: int64 = 0


@struct
class DeleteRecordsTopic:
    name: str = ""
    partitions: list[DeleteRecordsPartition] = v(default=[])


@api_message(21)
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = v(default=[])
    timeout_ms: int32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: int32 = 0
    low_watermark: int64 = 0
    error_code: int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = v(default=[])


@api_message(21)
class DeleteRecordsResponse:
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = v(default=[])
