"""InitializeShareGroupState: create the share state of partitions at the share coordinator (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ShareStateResult
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int32, int64, message, struct, uuid, v


@struct
class PartitionData:
    partition: int32 = 0
    state_epoch: int32 = 0
    start_offset: int64 = 0


@struct
class InitializeStateData:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = ""
    topics: list[InitializeStateData] = v(default=[])


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[ShareStateResult] = v(default=[])
