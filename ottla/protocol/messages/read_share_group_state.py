"""ReadShareGroupState: read the share state of partitions (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ReadStateTopic, StateBatch
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@api_message(84)
class ReadShareGroupStateRequest:
    group_id: str = ""
    topics: list[ReadStateTopic] = v(default=[])


@struct
class PartitionResult:
    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    start_offset: int64 = 0
    state_batches: list[StateBatch] = v(default=[])


@struct
class ReadStateResult:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionResult] = v(default=[])


@api_message(84)
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = v(default=[])
