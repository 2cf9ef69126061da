"""The records of a mirror's internal topics, in the formats of Kafka's MirrorMaker 2: OffsetSync, Checkpoint, Heartbeat (KIP-382).

MirrorMaker's tools and RemoteClusterUtils can read the records of this mirror, and this mirror those of MirrorMaker. Beside
MirrorMaker's key and value a pair and a checkpoint have a header with the ids of both topics, which MirrorMaker ignores: an
offset means nothing in a topic that was created again.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.partitions import TopicPartition
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.control_messages import decode_versioned
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.records.record import NewRecord, Record
from ottla.protocol.schema import int32, int64, message

VERSION = 0
_VERSION_BYTES = VERSION.to_bytes(2, "big")
#: The value of this header has the ids of the source's topic and of the target's, as Kafka prints them, with a space in
#: between.
TOPICS_HEADER = "ottla.topic.ids"


@message(versions="0", flexible="none")
class OffsetSyncKey:
    topic: str = ""
    partition: int32 = 0


@message(versions="0", flexible="none")
class OffsetSyncValue:
    upstream_offset: int64 = 0
    offset: int64 = 0


@message(versions="0", flexible="none")
class CheckpointKey:
    group: str = ""
    topic: str = ""
    partition: int32 = 0


@message(versions="0", flexible="none")
class CheckpointValue:
    upstream_offset: int64 = 0
    offset: int64 = 0
    metadata: str = ""


@message(versions="0", flexible="none")
class HeartbeatKey:
    source_cluster_alias: str = ""
    target_cluster_alias: str = ""


@message(versions="0", flexible="none")
class HeartbeatValue:
    timestamp: int64 = 0


class TopicIds(NamedTuple):
    """The ids of the topics of a pair or a checkpoint: the source's and the target's."""

    source: bytes
    target: bytes

    @property
    def header(self) -> tuple[str, bytes]:
        return TOPICS_HEADER, f"{uuid_to_str(self.source)} {uuid_to_str(self.target)}".encode()


class OffsetSync(NamedTuple):
    """The same record in both clusters: `upstream` is its offset in the source, `downstream` in the target.

    `ids` is None in MirrorMaker's pairs.
    """

    place: TopicPartition
    upstream: int
    downstream: int
    ids: TopicIds | None = None

    @property
    def record(self) -> NewRecord:
        value = OffsetSyncValue(self.upstream, self.downstream)
        return NewRecord(encode(OffsetSyncKey(*self.place), 0), encode(value, 0), -1, _headers(self.ids))


class Checkpoint(NamedTuple):
    """A group's committed offset in the source and in the target.

    `place` is the target's partition; `ids` are None in MirrorMaker's records.
    """

    group: str
    place: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""
    ids: TopicIds | None = None

    @property
    def record(self) -> NewRecord:
        key = encode(CheckpointKey(self.group, *self.place), 0)
        value = _VERSION_BYTES + encode(CheckpointValue(self.upstream, self.downstream, self.metadata), 0)
        return NewRecord(key, value, -1, _headers(self.ids))


def heartbeat_record(source: str, target: str, now_ms: int) -> NewRecord:
    key, value = encode(HeartbeatKey(source, target), 0), _VERSION_BYTES + encode(HeartbeatValue(now_ms), 0)
    return NewRecord(key, value)


def read_offset_sync(record: Record) -> OffsetSync | None:
    """Return the pair in a record; None for a tombstone and for other records."""
    key, value = record.key, record.value
    if key is None or value is None:
        return None
    try:
        name, _ = decoder(OffsetSyncKey, 0)(key, 0, len(key))
        pair, _ = decoder(OffsetSyncValue, 0)(value, 0, len(value))
    except ProtocolError:
        return None
    return OffsetSync((name.topic, name.partition), pair.upstream_offset, pair.offset, _read_ids(record))


def read_checkpoint(record: Record) -> Checkpoint | None:
    """Return the checkpoint in a record; None for a tombstone and for other records."""
    key, value = record.key, record.value
    if key is None or value is None:
        return None
    try:
        name, _ = decoder(CheckpointKey, 0)(key, 0, len(key))
        row, _ = decode_versioned(CheckpointValue, value)
    except ProtocolError:
        return None
    place = name.topic, name.partition
    return Checkpoint(name.group, place, row.upstream_offset, row.offset, row.metadata, _read_ids(record))


def _headers(ids: TopicIds | None) -> tuple[tuple[str, bytes], ...]:
    return () if ids is None else (ids.header,)


def _read_ids(record: Record) -> TopicIds | None:
    """Return the ids in the header; None without a header, or if it does not come from this mirror."""
    text = dict(record.headers).get(TOPICS_HEADER)
    try:
        source, target = (text or b"").decode("ascii").split(" ")
        return TopicIds(uuid_from_str(source), uuid_from_str(target))
    except ValueError:
        return None
