"""ShareAcknowledge: acknowledge records of a share group (KIP-932).

v2 adds renewing (KIP-1222).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import AcknowledgeTopic, CurrentLeader, NodeEndpoint
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@api_message(79)
class ShareAcknowledgeRequest:
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: bool = v("2+", default=False)
    topics: list[AcknowledgeTopic] = v(default=[])


@struct
class PartitionData:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    current_leader: CurrentLeader = v(factory=CurrentLeader)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@api_message(79)
class ShareAcknowledgeResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = v("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v(default=[])
