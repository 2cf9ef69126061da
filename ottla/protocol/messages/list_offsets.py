"""ListOffsets: find offsets by timestamp, or the first or last one.

v2 adds isolation level; v4 leader epoch; v7 max timestamp (KIP-734); v8 local log start (KIP-405); v9 last tiered
(KIP-1005); v10 remote timeout (KIP-1075); v11 earliest pending upload (KIP-1023).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, int64, struct, v


@struct
class ListOffsetsPartition:
    partition_index: int32 = 0
    current_leader_epoch: int32 = v("4+", default=-1, ignorable=True)
    timestamp: int64 = 0
    max_num_offsets: int32 = v("0", default=1)


@struct
class ListOffsetsTopic:
    name: str = ""
    partitions: list[ListOffsetsPartition] = v(default=[])


@api_message(2)
class ListOffsetsRequest:
    replica_id: int32 = 0
    isolation_level: int8 = v("2+", default=0)
    topics: list[ListOffsetsTopic] = v(default=[])
    timeout_ms: int32 = v("10+", default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    old_style_offsets: list[int64] = v("0", default=[])
    timestamp: int64 = v("1+", default=-1, ignorable=True)
    offset: int64 = v("1+", default=-1, ignorable=True)
    leader_epoch: int32 = v("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = v(default=[])


@api_message(2)
class ListOffsetsResponse:
    throttle_time_ms: int32 = v("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = v(default=[])
