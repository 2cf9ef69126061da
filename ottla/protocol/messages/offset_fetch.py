"""OffsetFetch: read a group's offsets.

v2 takes null for all topics; v5 adds leader epoch; v7 waits for pending transactions (KIP-447); v8 many groups at
once (KIP-709); v9 member id and epoch (KIP-848); v10 topic ids instead of names.
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class OffsetFetchRequestTopics:
    name: str = v("8-9", default="", ignorable=True)
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int32] = v(default=[])


@struct
class OffsetFetchRequestGroup:
    group_id: str = ""
    member_id: str | None = v("9+", default=None, ignorable=True)
    member_epoch: int32 = v("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = v(default=[])


@api_message(9)
class OffsetFetchRequest:
    group_id: str = v("0-7", default="")
    topics: list[TopicPartitionIndexes] | None = v("0-7", default=[], nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = v("8+", default=[])
    require_stable: bool = v("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = v("5-7", default=-1, ignorable=True)
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopic:
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = v(default=[])


@struct
class OffsetFetchResponsePartitions:
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = -1
    metadata: str | None = ""
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: str = v("8-9", default="", ignorable=True)
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = v(default=[])


@struct
class OffsetFetchResponseGroup:
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = v(default=[])
    error_code: int16 = 0


@api_message(9)
class OffsetFetchResponse:
    throttle_time_ms: int32 = v("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = v("0-7", default=[])
    error_code: int16 = v("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = v("8+", default=[])
