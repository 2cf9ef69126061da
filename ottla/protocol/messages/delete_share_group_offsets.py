"""DeleteShareGroupOffsets: forget a share group's offsets of topics (KIP-932)."""

from __future__ import annotations

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int16, int32, message, struct, uuid, v


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = ""


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = v(default=[])


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = None


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = v(default=[])
