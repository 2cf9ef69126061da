"""Keys and values of the records in `__share_group_state`: whole states of share partitions, and updates (KIP-932)."""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.messages.shared_structs import StateBatch
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int32, int64, message, uuid, v


@message(key=0, versions="0", flexible="none")
class ShareSnapshotKey:
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v(tag=0, default=-1)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = v(default=[])


@message(key=1, versions="0", flexible="none")
class ShareUpdateKey:
    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v(tag=0, default=-1)
    state_batches: list[StateBatch] = v(default=[])


SHARE_RECORDS: RecordTypes = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
