"""Messages that are neither requests nor records of a topic: control records, small files, opaque bytes.

- values of control records: LeaderChangeMessage (v1 adds directory ids, KIP-853), SnapshotHeaderRecord and
  SnapshotFooterRecord (KIP-630), KRaftVersionRecord and VotersRecord (KIP-853), EndTxnMarker (KIP-98). The values are
  bare, except that EndTxnMarker has an int16 version first; keys and batches are in records/control.py
- files: AbortedTxn (an entry of .txnindex), ProducerSnapshot (.snapshot), QuorumStateData (quorum-state, as JSON). The
  first two begin with an int16 version
- bytes inside requests, with an int16 version first: ConsumerProtocolSubscription and -Assignment (JoinGroup,
  SyncGroup), DefaultPrincipalData (Envelope)
"""

from __future__ import annotations

from typing import TypeVar

from ottla.protocol.compile import decoder
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import (
    ZERO_UUID,
    check_version,
    info_of,
    int16,
    int32,
    int64,
    message,
    struct,
    uint32,
    uuid,
    v,
)

T = TypeVar("T")


def decode_versioned(cls: type[T], data: Buffer, *, newer_too: bool = False) -> tuple[T, int]:
    """Decode a message that begins with its version; return both.

    `newer_too`: a version above ours is read as our highest one, and the bytes after it are ignored. Subscriptions and
    assignments need this, because clients of different releases read each other's.
    """
    if len(data) < 2:
        raise MalformedMessage(f"{cls.__name__}: cut short")
    version = int.from_bytes(data[:2], "big", signed=True)
    versions = info_of(cls).versions
    newer = newer_too and version > versions.high
    if not newer:
        check_version(cls, version)
    obj, pos = decoder(cls, min(version, versions.high))(data, 2, len(data))
    if pos != len(data) and not newer:
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(data) - pos} bytes left over")
    return obj, version


@struct
class LeaderChangeVoter:
    voter_id: int32 = 0
    voter_directory_id: uuid = v("1+", default=ZERO_UUID)


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    version: int16 = 0
    leader_id: int32 = 0
    voters: list[LeaderChangeVoter] = v(default=[])
    granting_voters: list[LeaderChangeVoter] = v(default=[])


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: int16 = 0


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    version: int16 = 0
    kraft_version: int16 = 0


@struct
class Voter:
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    endpoints: list[Listener] = v(default=[])
    kraft_version_feature: KRaftVersionFeature = v(factory=KRaftVersionFeature)


@message(versions="0", flexible="0+")
class VotersRecord:
    version: int16 = 0
    voters: list[Voter] = v(default=[])


@message(versions="0", flexible="none")
class EndTxnMarker:
    coordinator_epoch: int32 = 0


@message(versions="0", flexible="none")
class AbortedTxn:
    producer_id: int64 = 0
    first_offset: int64 = 0
    last_offset: int64 = 0
    last_stable_offset: int64 = 0


@struct
class ProducerEntry:
    producer_id: int64 = 0
    epoch: int16 = 0
    last_sequence: int32 = 0
    last_offset: int64 = 0
    offset_delta: int32 = 0
    timestamp: int64 = 0
    coordinator_epoch: int32 = 0
    current_txn_first_offset: int64 = 0


@message(versions="1", flexible="none")
class ProducerSnapshot:
    crc: uint32 = 0
    producer_entries: list[ProducerEntry] = v(default=[])


@struct
class QuorumVoter:
    voter_id: int32 = 0


@message(versions="0-1", flexible="0+")
class QuorumStateData:
    cluster_id: str = v("0", default="")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: uuid = v("1+", default=ZERO_UUID)
    applied_offset: int64 = v("0", default=0)
    current_voters: list[QuorumVoter] | None = v("0", default=[])


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = ""
    name: str = ""
    token_authenticated: bool = False


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: list[str] = v(default=[])
    user_data: bytes | None = None
    owned_partitions: list[TopicNamePartitions] = v("1+", default=[], ignorable=True)
    generation_id: int32 = v("2+", default=-1, ignorable=True)
    rack_id: str | None = v("3+", default=None, ignorable=True)


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicNamePartitions] = v(default=[])
    user_data: bytes | None = None
