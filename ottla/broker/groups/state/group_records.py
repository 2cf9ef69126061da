"""Records of `__consumer_offsets`: which of them groups understand, and in which version they are written.

Kafka 4.3 writes GroupMetadata in v3, offsets in v4, and in v1 when a client still asks for a retention time of its own
(OffsetCommit v2-4). Unknown key types are skipped when loading, so that a newer broker's records survive (KIP-915);
a value of an unknown version makes its group unavailable.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.shard import UnreadableValue
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.coordinator_records import (
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
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

# The types that the shard replays. The types of the other group protocols will be added here.
RECORDS = {
    kind: GROUP_RECORDS[kind] for kind in (0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23)
}


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


class GroupRecordCodec:
    """Encodes and decodes the records."""

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        return encode_key(key), None if value is None else encode_value(value, value_version(value))

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
        try:
            known_key = decode_key(RECORDS, key)
        except UnknownRecord:
            return None
        try:
            known_value = None if value is None else decode_value(RECORDS, known_key, value)
        except ProtocolError as error:
            raise UnreadableValue(_modern(known_key, None)[0], error) from error
        return _modern(known_key, known_value)


def value_version(value: object) -> int:
    """The version a value is written in."""
    if isinstance(value, OffsetCommitValue):
        return OFFSET_COMMIT_VERSION if value.expire_timestamp == -1 else OFFSET_COMMIT_EXPIRING_VERSION
    return GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else MODERN_GROUP_VERSION


def _modern(key: object, value: Any) -> CoordinatorRecord:
    """Return an offset of the oldest format in the present one, and any other record unchanged."""
    if not isinstance(key, LegacyOffsetCommitKey):
        return key, value
    modern = None
    if value is not None:
        modern = OffsetCommitValue(
            offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
        )
    return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), modern
