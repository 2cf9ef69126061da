"""Records of `__consumer_offsets`: which of them groups understand, and in which version they are written.

Kafka 4.3 writes GroupMetadata in v3, offsets in v4, and in v1 when a client still asks for a retention time of its own
(OffsetCommit v2-4). A value of an unknown version makes its group unavailable.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.shard import RecordCodec
from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

ClassicKey: TypeAlias = GroupMetadataKey | OffsetCommitKey
#: The keys that the shard replays: these, and those of the kinds of modern groups, which have a `group_id`.
GroupKey: TypeAlias = Any

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_EXPIRING_VERSION = 1
MODERN_GROUP_VERSION = 0
CONSUMER_GROUP_PARTITION_METADATA = 4


def group_of(key: GroupKey) -> str:
    group_id: str = key.group if isinstance(key, ClassicKey) else key.group_id
    return group_id


def group_metadata_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """Return a group's record, or its tombstone if there is no value."""
    return GroupMetadataKey(group=group_id), value


def offset_commit_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> CoordinatorRecord:
    """Returns a committed offset; without a value, its tombstone."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition), value


class GroupRecordCodec(RecordCodec):
    #: Without the partitions' metadata of consumer groups, in whose place Kafka 4.1 has a hash (KIP-1101).
    types: ClassVar[RecordTypes] = {
        kind: classes for kind, classes in GROUP_RECORDS.items() if kind != CONSUMER_GROUP_PARTITION_METADATA
    }

    def version_of(self, value: object) -> int:
        if isinstance(value, OffsetCommitValue):
            return OFFSET_COMMIT_VERSION if value.expire_timestamp == -1 else OFFSET_COMMIT_EXPIRING_VERSION
        return GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else MODERN_GROUP_VERSION

    def current(self, key: object, value: Any) -> CoordinatorRecord:
        """Return an offset of the oldest format in the present one, and any other record unchanged."""
        if not isinstance(key, LegacyOffsetCommitKey):
            return key, value
        offset = None
        if value is not None:
            offset = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), offset
