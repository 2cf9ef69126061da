"""ConsumerGroupHeartbeat: membership, subscription and assignment in the consumer protocol (KIP-848).

v1 adds regular expressions and member ids made by the client (KIP-1082).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions
from ottla.protocol.schema import api_message, int16, int32, v


@api_message(68)
class ConsumerGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = v("1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicIdPartitions] | None = None


@api_message(68)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: TopicIdAssignment | None = None
