"""OffsetDelete: delete a group's offsets of some partitions (KIP-496). Never flexible."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, message, struct, v


@struct
class OffsetDeleteRequestPartition:
    partition_index: int32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = v(default=[])


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = v(default=[])


@struct
class OffsetDeleteResponsePartition:
    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = v(default=[])


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = v(default=[])
