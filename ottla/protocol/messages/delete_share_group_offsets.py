"""DeleteShareGroupOffsets: forget a share group's offsets of topics (KIP-932)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = ""


@api_message(92)
class DeleteShareGroupOffsetsRequest:
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = v(default=[])


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = ""
    topic_id: uuid = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = None


@api_message(92)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = v(default=[])
