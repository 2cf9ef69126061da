"""AlterShareGroupOffsets: set where an empty share group starts (KIP-932)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int32 = 0
    start_offset: int64 = 0


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = v(default=[])


@api_message(91)
class AlterShareGroupOffsetsRequest:
    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = v(default=[])


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = v(default=[])


@api_message(91)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = v(default=[])
