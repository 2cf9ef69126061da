"""ShareFetch: acquire records of a share group, and acknowledge earlier ones (KIP-932).

v2 adds acquire modes (KIP-1206) and renewing (KIP-1222).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import AcknowledgeTopic, CurrentLeader, NodeEndpoint, TopicIdPartitions
from ottla.protocol.schema import ZERO_UUID, Records, api_message, int8, int16, int32, int64, struct, uuid, v


@api_message(78)
class ShareFetchRequest:
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 0x7FFF_FFFF
    max_records: int32 = 0
    batch_size: int32 = 0
    share_acquire_mode: int8 = v("2+", default=0, ignorable=True)
    is_renew_ack: bool = v("2+", default=False)
    topics: list[AcknowledgeTopic] = v(default=[])
    forgotten_topics_data: list[TopicIdPartitions] = v(default=[])


@struct
class AcquiredRecords:
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_count: int16 = 0


@struct
class PartitionData:
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: CurrentLeader = v(factory=CurrentLeader)
    records: Records = b""
    acquired_records: list[AcquiredRecords] = v(default=[])


@struct
class ShareFetchableTopicResponse:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionData] = v(default=[])


@api_message(78)
class ShareFetchResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = v(default=[])
    node_endpoints: list[NodeEndpoint] = v(default=[])
