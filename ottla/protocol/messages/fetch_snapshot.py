"""FetchSnapshot: read a part of a metadata snapshot (KIP-630).

v1 adds the directory id and the leader's endpoint (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import NodeEndpoint
from ottla.protocol.messages.shared_structs import CurrentLeader
from ottla.protocol.schema import ZERO_UUID, Records, api_message, int16, int32, int64, struct, uuid, v


@struct
class SnapshotId:
    end_offset: int64 = 0
    epoch: int32 = 0


@struct
class PartitionSnapshotRequest:
    partition: int32 = 0
    current_leader_epoch: int32 = 0
    snapshot_id: SnapshotId = v(factory=SnapshotId)
    position: int64 = 0
    replica_directory_id: uuid = v("1+", tag=0, default=ZERO_UUID, ignorable=True)


@struct
class TopicSnapshotRequest:
    name: str = ""
    partitions: list[PartitionSnapshotRequest] = v(default=[])


@api_message(59)
class FetchSnapshotRequest:
    cluster_id: str | None = v(tag=0, default=None)
    replica_id: int32 = -1
    max_bytes: int32 = 0x7FFF_FFFF
    topics: list[TopicSnapshotRequest] = v(default=[])


@struct
class PartitionSnapshotResponse:
    index: int32 = 0
    error_code: int16 = 0
    snapshot_id: SnapshotId = v(factory=SnapshotId)
    current_leader: CurrentLeader = v(tag=0, factory=CurrentLeader)
    size: int64 = 0
    position: int64 = 0
    unaligned_records: Records = b""


@struct
class TopicSnapshotResponse:
    name: str = ""
    partitions: list[PartitionSnapshotResponse] = v(default=[])


@api_message(59)
class FetchSnapshotResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicSnapshotResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v("1+", tag=0, default=[])
