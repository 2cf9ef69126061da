"""OffsetCommit: store a group's offsets.

v5 drops the retention time; v6 adds leader epoch; v7 group instance id (KIP-345); v9 new consumer protocol
(KIP-848); v10 topic ids instead of names.
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.schema import ZERO_UUID, api_message, int32, int64, struct, uuid, v


@struct
class OffsetCommitRequestPartition:
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = v("6+", default=-1, ignorable=True)
    commit_timestamp: int64 = v("1", default=-1)
    committed_metadata: str | None = ""


@struct
class OffsetCommitRequestTopic:
    name: str = v("0-9", default="", ignorable=True)
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = v(default=[])


@api_message(8)
class OffsetCommitRequest:
    group_id: str = ""
    generation_id_or_member_epoch: int32 = v("1+", default=-1, ignorable=True)
    member_id: str = v("1+", default="", ignorable=True)
    group_instance_id: str | None = v("7+", default=None)
    retention_time_ms: int64 = v("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = v(default=[])


@struct
class OffsetCommitResponseTopic:
    name: str = v("0-9", default="", ignorable=True)
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionErrorCode] = v(default=[])


@api_message(8)
class OffsetCommitResponse:
    throttle_time_ms: int32 = v("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = v(default=[])
