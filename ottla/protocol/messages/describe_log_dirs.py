"""DescribeLogDirs: log directories of a broker and the replicas in them.

v3 adds a top-level error; v4 the size of the volumes (KIP-827); v5 cordoned directories (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(35)
class DescribeLogDirsRequest:
    topics: list[TopicNamePartitions] | None = v(default=[])


@struct
class DescribeLogDirsPartition:
    partition_index: int32 = 0
    partition_size: int64 = 0
    offset_lag: int64 = 0
    is_future_key: bool = False


@struct
class DescribeLogDirsTopic:
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = v(default=[])


@struct
class DescribeLogDirsResult:
    error_code: int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = v(default=[])
    total_bytes: int64 = v("4+", default=-1, ignorable=True)
    usable_bytes: int64 = v("4+", default=-1, ignorable=True)
    is_cordoned: bool = v("5+", default=False, ignorable=True)


@api_message(35)
class DescribeLogDirsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = v("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = v(default=[])
