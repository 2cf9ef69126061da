"""The roles a replica can have. One small class each; which may follow which is in `quorum.py`.

    Unattached   knows no leader to fetch from; may have voted in this epoch
    Prospective  asks whether it would win an election, before it disturbs anyone by holding one (PreVote, KIP-996)
    Candidate    has voted for itself in a new epoch and asks for votes
    Leader       won the epoch; `leader.py`
    Follower     fetches from the leader of the epoch
    Resigned     was leader of this epoch and will not be again in it

An observer is a replica that is not in the voter set: it is Unattached or Follower and never asks for votes. A voter set
can change under a role, so roles do not know whether their replica votes.

Deadlines are monotonic milliseconds. `election` is what must be durable about the role.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.leader import NEVER, Leader
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.voters import Endpoints, ReplicaKey


@dataclass(slots=True)
class Votes:
    """The state of one ballot among the voters at its start."""

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
        """A voter's binding answer never changes; of pre-votes the last answer counts."""
        (self.granted if granted else self.rejected).add(voter_id)
        (self.rejected if granted else self.granted).discard(voter_id)


def is_voted_for(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """Whether a repeated request comes from the candidate that has this vote already.

    The quorum-state file of static voters, version 0, keeps no directory: after a restart the node id alone decides.
    """
    return voted.id == candidate.id and (not voted.knows_directory or voted == candidate)


def grants_without_leader(
    role: Unattached | Prospective, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool
) -> bool:
    """The answer of a role that follows no leader; an epoch whose leader is known by name has had its election."""
    if pre_vote:
        return log_is_up_to_date
    if role.voted is not None:
        return is_voted_for(role.voted, candidate)
    return role.leader_id < 0 and log_is_up_to_date


@dataclass(slots=True)
class Unattached:
    epoch: int
    election_deadline_ms: int
    voted: ReplicaKey | None = None
    #: The leader of this epoch when it is known by name only, without an address to fetch from.
    leader_id: int = -1

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        """When this role has something to do even if nothing happens."""
        return self.election_deadline_ms if is_voter else NEVER

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, log_is_up_to_date, pre_vote)


@dataclass(slots=True)
class Prospective:
    epoch: int
    votes: Votes
    election_deadline_ms: int
    #: Who did not say yes is asked again from here on: a pre-vote binds nobody, and peers notice a dead leader at
    #: different times.
    retry_ms: int
    #: What this replica still owes the epoch it has not left: its vote, or its leader, to which it may return.
    voted: ReplicaKey | None = None
    leader_id: int = -1
    leader_endpoints: Endpoints = ()

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        return min(self.election_deadline_ms, self.retry_ms)

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, log_is_up_to_date, pre_vote)


@dataclass(slots=True)
class Candidate:
    epoch: int
    own_key: ReplicaKey
    votes: Votes
    #: After it, or after `RaftState.election_backoff_ms` once the election is lost, the replica asks for pre-votes again.
    election_deadline_ms: int
    is_backing_off: bool = False

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, -1, self.own_key)

    def deadline_ms(self, is_voter: bool) -> int:
        return self.election_deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return log_is_up_to_date if pre_vote else candidate == self.own_key


@dataclass(slots=True)
class Download:
    """A snapshot on its way from the leader."""

    snapshot: OffsetAndEpoch
    position: int = 0
    #: All bytes are here; the driver is making them durable. Nothing is fetched meanwhile.
    is_complete: bool = False


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    fetch_deadline_ms: int
    voted: ReplicaKey | None = None
    #: Whether the leader has answered a fetch since it was last in doubt. While it answers us, we help nobody to
    #: replace it: a pre-vote is refused (KIP-996).
    has_fetched: bool = False
    download: Download | None = None
    #: When to compare the voter set's entry of this replica with its configuration (KIP-853).
    voter_change_ms: int = NEVER

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def deadline_ms(self, is_voter: bool) -> int:
        return self.fetch_deadline_ms if is_voter else NEVER

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and log_is_up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    epoch: int
    own_id: int
    election_deadline_ms: int
    #: Who has not yet answered that it knows of the resignation, best candidate first.
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
