"""TxnOffsetCommit: store a group's offsets within a transaction.

v2 adds leader epoch; v3 the member's identity (KIP-447); v5 joins the group to the transaction by itself (KIP-890);
v6 topic ids instead of names (KIP-1319).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = v("2+", default=-1, ignorable=True)
    committed_metadata: str | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: str = v("0-5", default="", ignorable=True)
    topic_id: uuid = v("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = v(default=[])


@api_message(28)
class TxnOffsetCommitRequest:
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id_or_member_epoch: int32 = v("3+", default=-1)
    member_id: str = v("3+", default="")
    group_instance_id: str | None = v("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = v(default=[])


@struct
class TxnOffsetCommitResponseTopic:
    name: str = v("0-5", default="", ignorable=True)
    topic_id: uuid = v("6+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionErrorCode] = v(default=[])


@api_message(28)
class TxnOffsetCommitResponse:
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = v(default=[])
