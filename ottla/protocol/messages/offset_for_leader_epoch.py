"""OffsetForLeaderEpoch: where a leader epoch ends, to find a point of divergence.

v2 adds the current leader epoch (KIP-320); v3 the replica id, by default -2 for a debugging consumer.
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@struct
class OffsetForLeaderPartition:
    partition: int32 = 0
    current_leader_epoch: int32 = v("2+", default=-1, ignorable=True)
    leader_epoch: int32 = 0


@struct
class OffsetForLeaderTopic:
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = v(default=[])


@api_message(23)
class OffsetForLeaderEpochRequest:
    replica_id: int32 = v("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = v(default=[])


@struct
class EpochEndOffset:
    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = v("1+", default=-1, ignorable=True)
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: str = ""
    partitions: list[EpochEndOffset] = v(default=[])


@api_message(23)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int32 = v("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = v(default=[])
