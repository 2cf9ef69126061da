"""Keys and values of the records in `__consumer_offsets`: committed offsets and classic groups, and the table of all types.

See coordinator_records.py for the frame. OffsetCommit v3 adds the leader epoch and v4 is flexible, with a tagged topic
id; GroupMetadata v3 adds instance ids, v4 is flexible. The other types of groups have a file and a table each.
"""

from __future__ import annotations

from ottla.protocol.internal_topics.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.internal_topics.share_group_records import SHARE_GROUP_RECORDS
from ottla.protocol.internal_topics.streams_group_records import STREAMS_GROUP_RECORDS
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int32, int64, message, struct, uuid, v


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitValue:
    offset: int64 = 0
    metadata: str = ""
    commit_timestamp: int64 = 0


@message(key=1, versions="0", flexible="none")
class OffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int64 = 0
    leader_epoch: int32 = v("3+", default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = v("1", default=-1, ignorable=True)
    topic_id: uuid = v("4+", tag=0, default=ZERO_UUID, ignorable=True)


@message(key=2, versions="0", flexible="none")
class GroupMetadataKey:
    group: str = ""


@struct
class MemberMetadata:
    member_id: str = ""
    group_instance_id: str | None = v("3+", default=None, ignorable=True)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int32 = v("1+", default=-1, ignorable=True)
    session_timeout: int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = v("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = v(default=[])


GROUP_RECORDS: RecordTypes = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    **CONSUMER_GROUP_RECORDS,
    **SHARE_GROUP_RECORDS,
    **STREAMS_GROUP_RECORDS,
}
