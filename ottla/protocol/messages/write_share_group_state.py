"""WriteShareGroupState: write the share state of partitions (KIP-932).

v1 adds the number of finished deliveries (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ShareStateResult, StateBatch
from ottla.protocol.schema import ZERO_UUID, api_message, int32, int64, struct, uuid, v


@struct
class PartitionData:
    partition: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = v(default=[])


@struct
class WriteStateData:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@api_message(85)
class WriteShareGroupStateRequest:
    group_id: str = ""
    topics: list[WriteStateData] = v(default=[])


@api_message(85)
class WriteShareGroupStateResponse:
    results: list[ShareStateResult] = v(default=[])
