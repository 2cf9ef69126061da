"""Fetch: read batches, for consumers, followers and the quorum.

v5 adds log start offset; v7 fetch sessions (KIP-227); v9 leader epoch (KIP-320); v11 rack and preferred replica
(KIP-392); v12 diverging epoch and snapshot id (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16
new leaders (KIP-951); v17 directory id (KIP-853); v18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.schema import ZERO_UUID, Records, api_message, int8, int16, int32, int64, struct, uuid, v


@struct
class ReplicaState:
    replica_id: int32 = -1
    replica_epoch: int64 = -1


@struct
class FetchPartition:
    partition: int32 = 0
    current_leader_epoch: int32 = v("9+", default=-1, ignorable=True)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = v("12+", default=-1)
    log_start_offset: int64 = v("5+", default=-1, ignorable=True)
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid = v("17+", tag=0, default=ZERO_UUID, ignorable=True)
    high_watermark: int64 = v("18+", tag=1, default=0x7FFF_FFFF_FFFF_FFFF, ignorable=True)


@struct
class FetchTopic:
    topic: str = v("0-12", default="", ignorable=True)
    topic_id: uuid = v("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = v(default=[])


@struct
class ForgottenTopic:
    topic: str = v("7-12", default="", ignorable=True)
    topic_id: uuid = v("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int32] = v(default=[])


@api_message(1)
class FetchRequest:
    cluster_id: str | None = v("12+", tag=0, default=None, ignorable=True)
    replica_id: int32 = v("0-14", default=-1)
    replica_state: ReplicaState = v("15+", tag=1, factory=ReplicaState)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = v("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int8 = v("4+", default=0, ignorable=True)
    session_id: int32 = v("7+", default=0, ignorable=True)
    session_epoch: int32 = v("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = v(default=[])
    forgotten_topics_data: list[ForgottenTopic] = v("7+", default=[])
    rack_id: str = v("11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class SnapshotId:
    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    producer_id: int64 = 0
    first_offset: int64 = 0


@struct
class PartitionData:
    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = v("4+", default=-1, ignorable=True)
    log_start_offset: int64 = v("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = v("12+", tag=0, factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = v("12+", tag=1, factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = v("12+", tag=2, factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = v("4+", default=[], ignorable=True)
    preferred_read_replica: int32 = v("11+", default=-1)
    records: Records | None = None


@struct
class FetchableTopicResponse:
    topic: str = v("0-12", default="", ignorable=True)
    topic_id: uuid = v("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = v(default=[])


@api_message(1)
class FetchResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = v("7+", default=0, ignorable=True)
    session_id: int32 = v("7+", default=0)
    responses: list[FetchableTopicResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v("16+", tag=0, default=[])
