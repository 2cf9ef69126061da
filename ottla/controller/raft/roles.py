"""The roles a replica can have. One small class each; which may follow which is in `quorum.py`.

    Unattached   knows no leader to fetch from; may have voted in this epoch
    Prospective  requests pre-votes, to find out whether it would win an election before it raises the epoch (KIP-996)
    Candidate    has voted for itself in a new epoch and requests votes
    Leader       won the epoch; `leader.py`
    Follower     fetches from the leader of the epoch
    Resigned     was leader of this epoch and will not be again in it

An observer is a replica that is not in the voter set: it is Unattached or Follower and never requests votes. A voter set
can change under a role, so roles do not know whether their replica votes.

Deadlines are monotonic milliseconds. `election` is the durable part of the role.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.leader import NEVER, Leader
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.voters import QuorumEndpoints, ReplicaKey
from ottla.protocol.slotted import mutable


@mutable
class Votes:
    """The votes of one election among the voters at its start."""

    voters: frozenset[int]
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)

    @classmethod
    def among(cls, voters: Iterable[int], own_id: int) -> Votes:
        return cls(frozenset(voters), granted={own_id})

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        return len(self.granted & self.voters) >= self.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters - self.rejected) < self.majority

    @property
    def open(self) -> frozenset[int]:
        return self.voters - self.granted - self.rejected

    def record(self, voter_id: int, granted: bool) -> None:
        """Record a reply. A vote in an election never changes; of several replies to pre-votes the last one counts."""
        (self.granted if granted else self.rejected).add(voter_id)
        (self.rejected if granted else self.granted).discard(voter_id)


def is_voted_for(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """Return True if a request comes from the candidate that has this vote already.

    The quorum-state file of static voters, version 0, keeps no directory: after a restart the node id alone decides.
    """
    return voted.id == candidate.id and (not voted.knows_directory or voted == candidate)


def grants_without_leader(
    role: Unattached | Prospective, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool
) -> bool:
    """Decide a vote in a role without a leader to fetch from. An epoch whose leader is known has had its election already."""
    if pre_vote:
        return log_is_up_to_date
    if role.voted is not None:
        return is_voted_for(role.voted, candidate)
    return role.leader_id < 0 and log_is_up_to_date


@mutable
class Unattached:
    epoch: int
    election_deadline_ms: int
    voted: ReplicaKey | None = None
    #: The leader of this epoch if only its id is known, without an endpoint to fetch from.
    leader_id: int = -1

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        """Return when this role must act without an event."""
        return self.election_deadline_ms if is_voter else NEVER

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, log_is_up_to_date, pre_vote)


@mutable
class Prospective:
    epoch: int
    votes: Votes
    election_deadline_ms: int
    #: The time from which rejected pre-votes are retried: they are not binding, and peers notice a failed leader at
    #: different times.
    retry_ms: int
    #: The vote in the current epoch, or its leader, to which this replica may return.
    voted: ReplicaKey | None = None
    leader_id: int = -1
    leader_endpoints: QuorumEndpoints = ()

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        return min(self.election_deadline_ms, self.retry_ms)

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, log_is_up_to_date, pre_vote)


@mutable
class Candidate:
    epoch: int
    own_key: ReplicaKey
    votes: Votes
    #: After it, or after `QuorumState.election_backoff_ms` once the election is lost, the replica asks for pre-votes again.
    election_deadline_ms: int
    is_backing_off: bool = False

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, -1, self.own_key)

    def deadline_ms(self, is_voter: bool) -> int:
        return self.election_deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return log_is_up_to_date if pre_vote else candidate == self.own_key


@mutable
class Download:
    """The download of a snapshot from the leader."""

    snapshot: OffsetAndEpoch
    position: int = 0
    #: All bytes have arrived, and the driver is making them durable. No fetch is sent meanwhile.
    is_complete: bool = False


@mutable
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: QuorumEndpoints
    fetch_deadline_ms: int
    voted: ReplicaKey | None = None
    #: True if the leader has responded to a fetch since it was last suspected to have failed. Pre-votes are then rejected
    #: (KIP-996).
    has_fetched: bool = False
    download: Download | None = None
    #: The next time at which this replica compares its entry in the voter set with its configuration (KIP-853).
    voter_change_ms: int = NEVER
    #: True if the leader of static voters has got this voter's kraft.version levels: a Kafka leader raises kraft.version only then.
    has_described_itself: bool = False

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        return self.fetch_deadline_ms if is_voter else NEVER

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date and not self.has_fetched


@mutable
class Resigned:
    epoch: int
    own_id: int
    election_deadline_ms: int
    #: The voters that have not acknowledged the resignation, best candidate first.
    preferred_successors: tuple[ReplicaKey, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.own_id)

    def deadline_ms(self, is_voter: bool) -> int:
        return self.election_deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned
