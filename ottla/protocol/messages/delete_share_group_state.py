"""DeleteShareGroupState: delete the share state of partitions (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ShareStateResult
from ottla.protocol.schema import ZERO_UUID, api_message, int32, struct, uuid, v


@struct
class PartitionData:
    partition: int32 = 0


@struct
class DeleteStateData:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@api_message(86)
class DeleteShareGroupStateRequest:
    group_id: str = ""
    topics: list[DeleteStateData] = v(default=[])


@api_message(86)
class DeleteShareGroupStateResponse:
    results: list[ShareStateResult] = v(default=[])
