"""Records of `__share_group_state` as bytes, and as pairs of key and value.

Unknown record types are skipped when loading (KIP-915); a value of an unknown version makes its share partition unavailable.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.shard import UnreadableValue
from ottla.broker.share.state import SharePartitionKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.coordinator_records import (
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from ottla.protocol.internal_topics.share_records import (
    SHARE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

ShareKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey

VALUE_VERSION = 0


def partition_of(key: ShareKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def snapshot_record(key: SharePartitionKey, value: ShareSnapshotValue | None) -> CoordinatorRecord:
    """The snapshot record of a share partition; its tombstone if there is no value."""
    return ShareSnapshotKey(*key), value


def update_record(key: SharePartitionKey, value: ShareUpdateValue) -> CoordinatorRecord:
    return ShareUpdateKey(*key), value


class ShareRecordCodec:
    """Encodes and decodes the records."""

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        return encode_key(key), None if value is None else encode_value(value, VALUE_VERSION)

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
        try:
            known_key = decode_key(SHARE_RECORDS, key)
        except UnknownRecord:
            return None
        try:
            return known_key, None if value is None else decode_value(SHARE_RECORDS, known_key, value)
        except ProtocolError as error:
            raise UnreadableValue(known_key, error) from error
