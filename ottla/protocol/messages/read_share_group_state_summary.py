"""ReadShareGroupStateSummary: read start offset and epochs of the share state of partitions (KIP-932).

v1 adds the number of finished deliveries (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ReadStateTopic
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@api_message(87)
class ReadShareGroupStateSummaryRequest:
    group_id: str = ""
    topics: list[ReadStateTopic] = v(default=[])


@struct
class PartitionResult:
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = v("1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = v(default=[])


@api_message(87)
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = v(default=[])
