"""The core's messages: requests and replies between replicas, and the events of its driver.

They have the fields of Kafka's Raft RPCs that the algorithm uses, independent of the version on the wire; `wire/` converts
them to wire messages and back. Field names are Kafka's; `voter` is the replica for which a request is meant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.voters import QuorumEndpoints, ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import ErrorCode
from ottla.protocol.slotted import frozen

NONE = ErrorCode.NONE
#: The high watermark of a Fetch without that field (before KIP-1166): its fetch is not completed by the high watermark alone.
HIGH_WATERMARK_UNKNOWN = 2**63 - 1


@frozen
class Batch:
    """One record batch: the core reads its offsets and its records about voters; `data` is for the driver alone."""

    base_offset: int
    last_offset: int
    epoch: int
    data: Any
    voters: VoterSet | None = None
    kraft_version: int | None = None


@frozen
class LeaderChange:
    """The first record of every epoch, so that the leader has one of its own to commit."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


@frozen
class ControlRecords:
    """The contents of a control batch of the leader; the driver encodes it."""

    leader_change: LeaderChange | None = None
    kraft_version: int | None = None
    voters: VoterSet | None = None

    @property
    def count(self) -> int:
        return sum(part is not None for part in (self.leader_change, self.kraft_version, self.voters))


# Requests and replies.


@frozen
class LeaderReply:
    """A reply with the replier's epoch and the leader that it knows (-1: none)."""

    error: ErrorCode
    epoch: int = -1
    leader_id: int = -1
    leader_endpoints: QuorumEndpoints = ()


@frozen
class Vote:
    cluster_id: str | None
    voter: ReplicaKey | None
    epoch: int
    candidate: ReplicaKey
    log_end: OffsetAndEpoch
    pre_vote: bool = False


@frozen
class VoteReply(LeaderReply):
    granted: bool = False


@frozen
class BeginQuorumEpoch:
    cluster_id: str | None
    voter: ReplicaKey | None
    epoch: int
    leader_id: int
    leader_endpoints: QuorumEndpoints = ()


@frozen
class BeginQuorumEpochReply(LeaderReply):
    """The voter has followed the leader, or knows a later leader."""


@frozen
class EndQuorumEpoch:
    cluster_id: str | None
    epoch: int
    leader_id: int
    preferred_candidates: tuple[ReplicaKey, ...] = ()
    leader_endpoints: QuorumEndpoints = ()


@frozen
class EndQuorumEpochReply(LeaderReply):
    """The voter has learned that the leader resigned, or knows a later one."""


@frozen
class Fetch:
    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    log_end: OffsetAndEpoch
    high_watermark: int = HIGH_WATERMARK_UNKNOWN
    wait_ms_max: int = 0
    bytes_max: int = 8 * 1024 * 1024


@frozen
class FetchReply(LeaderReply):
    """The leader's core leaves `batches` empty and sets `records_from`; its driver reads the log when it sends."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records_from: int | None = None
    bytes_max: int = 0
    batches: tuple[Batch, ...] = ()


@frozen
class FetchSnapshot:
    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int


@frozen
class FetchSnapshotReply(LeaderReply):
    """The leader's core leaves `data` empty; its driver reads the file when it sends, and sets `size`."""

    snapshot: OffsetAndEpoch | None = None
    position: int = 0
    size: int = 0
    bytes_max: int = 0
    data: bytes | memoryview = b""


@frozen
class AddVoter:
    cluster_id: str | None
    voter: ReplicaKey
    endpoints: QuorumEndpoints
    timeout_ms: int
    ack_when_committed: bool = True


@frozen
class RemoveVoter:
    cluster_id: str | None
    voter: ReplicaKey


@frozen
class UpdateVoter:
    cluster_id: str | None
    epoch: int
    voter: Voter


@frozen
class VoterChangeReply(LeaderReply):
    """The reply to AddVoter, RemoveVoter and UpdateVoter."""

    message: str | None = None


@frozen
class SupportedVersions:
    """Requests a replica's supported kraft.version levels (ApiVersions), before it may become a voter."""


@frozen
class SupportedVersionsReply:
    error: ErrorCode
    kraft_version_min: int = 0
    kraft_version_max: int = 0


RequestBody = (
    Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter
    | SupportedVersions
)  # fmt: skip
ReplyBody = LeaderReply | SupportedVersionsReply


# Events that the driver steps into the core


class Received(NamedTuple):
    """A request arrived; `reply_to` is returned with the reply, and the core does not use it."""

    body: RequestBody
    reply_to: object


class Replied(NamedTuple):
    """The reply to one of our requests."""

    request_id: int
    body: ReplyBody


class Failed(NamedTuple):
    """One of our requests got no reply. A closed connection suggests that the process has ended."""

    request_id: int
    connection_closed: bool = False
    unsupported_version: bool = False


class Flushed(NamedTuple):
    """The log is flushed up to `offset`, as it was at `generation`."""

    generation: int
    offset: int


class SnapshotReceived(NamedTuple):
    """The last chunk of a leader's snapshot is stored, durable and readable under its name."""

    snapshot: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int | None


Message = Received | Replied | Failed | Flushed | SnapshotReceived
