"""ShareGroupHeartbeat: membership and assignment in a share group (KIP-932)."""

from __future__ import annotations

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int16, int32, message, struct, uuid, v


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@struct
class TopicPartitions:
    topic_id: uuid = ZERO_UUID
    partitions: list[int32] = v(default=[])


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = v(default=[])


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
