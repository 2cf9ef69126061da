"""Keys and values of the records of share groups' members (KIP-932) in `__consumer_offsets`; share_records.py has those of their state."""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicPartitions
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int8, int32, int64, message, struct, uuid, v


@message(key=10, versions="0", flexible="none")
class ShareGroupMemberMetadataKey:
    group_id: str = ""
    member_id: str = ""


@message(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = v(default=[])


@message(key=11, versions="0", flexible="none")
class ShareGroupMetadataKey:
    group_id: str = ""


@message(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: int32 = 0
    metadata_hash: int64 = 0


@message(key=12, versions="0", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: str = ""


@message(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = v(tag=0, default=0)


@message(key=13, versions="0", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    group_id: str = ""
    member_id: str = ""


@message(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicIdPartitions] = v(default=[])


@message(key=14, versions="0", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: str = ""
    member_id: str = ""


@message(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicIdPartitions] = v(default=[])


@message(key=15, versions="0", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    group_id: str = ""


@struct
class ShareTopicInfo:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""


@message(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitions] = v(default=[])
    initialized_topics: list[TopicPartitions] = v(default=[])
    deleting_topics: list[ShareTopicInfo] = v(default=[])


SHARE_GROUP_RECORDS: RecordTypes = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
