"""The records of a mirror's internal topics, in the formats of Kafka's MirrorMaker 2: OffsetSync, Checkpoint, Heartbeat (KIP-382).

Its tools and RemoteClusterUtils read what this mirror writes, and this mirror what MirrorMaker has written.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.leaders import TopicPartition
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.control_messages import decode_versioned
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import int32, int64, message

VERSION = 0
_VERSION_BYTES = VERSION.to_bytes(2, "big")


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


class OffsetSync(NamedTuple):
    """The same record at two places: `upstream` is its offset in the source, `downstream` in the target."""

    place: TopicPartition
    upstream: int
    downstream: int

    @property
    def record(self) -> tuple[bytes, bytes]:
        return encode(OffsetSyncKey(*self.place), 0), encode(OffsetSyncValue(self.upstream, self.downstream), 0)


class Checkpoint(NamedTuple):
    """A group's committed offset in the source, and what it is in the target, where `place` is."""

    group: str
    place: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    @property
    def record(self) -> tuple[bytes, bytes]:
        value = CheckpointValue(self.upstream, self.downstream, self.metadata)
        return encode(CheckpointKey(self.group, *self.place), 0), _VERSION_BYTES + encode(value, 0)


def heartbeat_record(source: str, target: str, now_ms: int) -> tuple[bytes, bytes]:
    return encode(HeartbeatKey(source, target), 0), _VERSION_BYTES + encode(HeartbeatValue(now_ms), 0)


def read_offset_sync(key: Buffer | None, value: Buffer | None) -> OffsetSync | None:
    """Return the pair of a record; None for a tombstone and for what is none."""
    if key is None or value is None:
        return None
    try:
        name, _ = decoder(OffsetSyncKey, 0)(key, 0, len(key))
        pair, _ = decoder(OffsetSyncValue, 0)(value, 0, len(value))
    except ProtocolError:
        return None
    return OffsetSync((name.topic, name.partition), pair.upstream_offset, pair.offset)


def read_checkpoint(key: Buffer | None, value: Buffer | None) -> Checkpoint | None:
    """Return the checkpoint of a record; None for a tombstone and for what is none."""
    if key is None or value is None:
        return None
    try:
        name, _ = decoder(CheckpointKey, 0)(key, 0, len(key))
        row, _ = decode_versioned(CheckpointValue, value)
    except ProtocolError:
        return None
    return Checkpoint(name.group, (name.topic, name.partition), row.upstream_offset, row.offset, row.metadata)
