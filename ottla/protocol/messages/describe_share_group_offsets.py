"""DescribeShareGroupOffsets: where share groups start in their partitions (KIP-932).

v1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = ""
    partitions: list[int32] = v(default=[])


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = v(default=[])


@api_message(90)
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = v(default=[])


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = 0
    lag: int64 = v("1+", default=-1, ignorable=True)
    error_code: int16 = 0
    error_message: str | None = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = v(default=[])


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = v(default=[])
    error_code: int16 = 0
    error_message: str | None = None


@api_message(90)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = v(default=[])
