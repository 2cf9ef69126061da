"""ShareGroupHeartbeat: membership and assignment in a share group (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicIdAssignment
from ottla.protocol.schema import api_message, int16, int32


@api_message(76)
class ShareGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@api_message(76)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: TopicIdAssignment | None = None
