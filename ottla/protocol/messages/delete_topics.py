"""DeleteTopics: delete topics.

v5 adds error messages (KIP-599); v6 topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class DeleteTopicState:
    name: str | None = None
    topic_id: uuid = ZERO_UUID


@api_message(20)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = v("6+", default=[])
    topic_names: list[str] = v("0-5", default=[], ignorable=True)
    timeout_ms: int32 = 0


@struct
class DeletableTopicResult:
    name: str | None = v(default="", nullable="6+")
    topic_id: uuid = v("6+", default=ZERO_UUID, ignorable=True)
    error_code: int16 = 0
    error_message: str | None = v("5+", default=None, ignorable=True)


@api_message(20)
class DeleteTopicsResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = v(default=[])
