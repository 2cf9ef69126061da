"""The records of `__remote_log_metadata` (KIP-405), and the frame around each, which is that of the metadata log.

A record has no key in Kafka's topic; its value is: frame version 1, type, version, then the fields, the first three as unsigned varints. The
partition of the topic follows from the topic id and the index of the partition whose segments it is about. A segment's states are 0 to 3
(COPY_SEGMENT_STARTED, COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED, DELETE_SEGMENT_FINISHED), a partition's 0 to 2
(DELETE_PARTITION_MARKED, _STARTED, _FINISHED).
"""

from __future__ import annotations

from typing import TypeAlias, get_args

from ottla.protocol.compile import decode, encoder
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_topics.coordinator_records import UnknownRecord
from ottla.protocol.primitives import Buffer, Pieces, read_uvarint, uvarint
from ottla.protocol.records.builder import murmur2
from ottla.protocol.schema import ZERO_UUID, info_of, int8, int32, int64, message, struct, uuid, v

FRAME_VERSION = 1


@struct
class TopicIdPartitionEntry:
    name: str = ""
    id: uuid = ZERO_UUID
    partition: int32 = 0


@struct
class RemoteLogSegmentIdEntry:
    topic_id_partition: TopicIdPartitionEntry = v(factory=TopicIdPartitionEntry)
    id: uuid = ZERO_UUID


@struct
class SegmentLeaderEpochEntry:
    leader_epoch: int32 = 0
    offset: int64 = 0


@message(key=0, versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry = v(factory=RemoteLogSegmentIdEntry)
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = v(default=[])
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: bool = v(tag=0, default=False)


@message(key=1, versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord:
    remote_log_segment_id: RemoteLogSegmentIdEntry = v(factory=RemoteLogSegmentIdEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0


@message(key=2, versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord:
    topic_id_partition: TopicIdPartitionEntry = v(factory=TopicIdPartitionEntry)
    broker_id: int32 = 0
    event_timestamp_ms: int64 = 0
    remote_partition_delete_state: int8 = 0


@message(key=3, versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord:
    segment_id: uuid = ZERO_UUID
    start_offset: int64 = 0
    end_offset: int64 = 0
    broker_id: int32 = 0
    max_timestamp_ms: int64 = 0
    event_timestamp_ms: int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = v(default=[])
    segment_size_in_bytes: int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int8 = 0
    txn_index_empty: bool = v(tag=0, default=False)


RemoteLogRecord: TypeAlias = (
    RemoteLogSegmentMetadataRecord
    | RemoteLogSegmentMetadataUpdateRecord
    | RemotePartitionDeleteMetadataRecord
    | RemoteLogSegmentMetadataSnapshotRecord
)
RECORDS: dict[int | None, type[RemoteLogRecord]] = {info_of(each).key: each for each in get_args(RemoteLogRecord)}


def encode_remote_log_record(record: RemoteLogRecord) -> bytes:
    """Return the value of a record of `__remote_log_metadata`."""
    key = info_of(type(record)).key
    assert key is not None
    pieces: Pieces = [uvarint(FRAME_VERSION), uvarint(key), uvarint(0)]
    encoder(type(record), 0)(record, pieces)
    return b"".join(pieces)


def decode_remote_log_record(value: Buffer) -> RemoteLogRecord:
    """Return the record that a value holds.

    Raises:
        MalformedMessage: it is cut short.
        UnknownRecord: a newer version has written it.
    """
    try:
        frame_version, pos = read_uvarint(value, 0)
        key, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
    except IndexError:
        raise MalformedMessage("record of a remote segment: cut short") from None
    cls = RECORDS.get(key)
    if frame_version != FRAME_VERSION or cls is None or version not in info_of(cls).versions:
        raise UnknownRecord(f"record {key} v{version} of a remote segment, in frame {frame_version}")
    return decode(cls, value, version, pos)


def metadata_partition(topic_id: bytes, partition: int, count: int) -> int:
    """Return which of the topic's `count` partitions has the records of a partition's segments: Kafka's hash of id and index."""
    most, least = int.from_bytes(topic_id[:8], "big"), int.from_bytes(topic_id[8:], "big")
    value = 1
    for each in (_java_hash(least), _java_hash(most), partition):
        value = (31 * value + each) & 0xFFFF_FFFF
    return (murmur2(value.to_bytes(4, "big")) & 0x7FFF_FFFF) % count


def _java_hash(value: int) -> int:
    """Return Java's Long.hashCode()."""
    return (value ^ value >> 32) & 0xFFFF_FFFF
