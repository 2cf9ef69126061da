"""InitializeShareGroupState: create the share state of partitions at the share coordinator (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ShareStateResult
from ottla.protocol.schema import ZERO_UUID, api_message, int32, int64, struct, uuid, v


@struct
class PartitionData:
    partition: int32 = 0
    state_epoch: int32 = 0
    start_offset: int64 = 0


@struct
class InitializeStateData:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@api_message(83)
class InitializeShareGroupStateRequest:
    group_id: str = ""
    topics: list[InitializeStateData] = v(default=[])


@api_message(83)
class InitializeShareGroupStateResponse:
    results: list[ShareStateResult] = v(default=[])
