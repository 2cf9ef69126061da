"""The leader's soft state: the progress of every replica, the high watermark, and check-quorum.

A fetch at offset N means that everything below N is on that replica's disk. The high watermark is the offset that a majority
of voters has reached, but only once that is above a record of the leader's own epoch: another leader can still replace a
record of an older epoch on a majority (Raft, figure 8). The leader's own progress is its flushed offset.
"""

from __future__ import annotations

from dataclasses import field

from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.messages import HIGH_WATERMARK_UNKNOWN, AddVoter, Fetch
from ottla.controller.raft.voters import ReplicaKey, VoterSet
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.slotted import mutable

#: No deadline.
NEVER = 1 << 62
#: Voters fetch at least every fetch timeout; half of it again allows for the network and for slow disks (KIP-595's check).
CHECK_QUORUM_FACTOR = 1.5
#: An observer is described for this time after its last fetch.
OBSERVER_SESSION_MS = 5 * 60 * 1000
#: A new voter must have been caught up within this time: otherwise the majority that includes it might stall.
CAUGHT_UP_MS = 60 * 60 * 1000


@mutable
class Progress:
    """The fetch progress of one replica; -1 means unknown."""

    key: ReplicaKey
    #: The directory that fetches as this voter, if the configuration names the voter by its node id alone.
    directory_id: bytes = ZERO_UUID
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset_at_fetch: int = -1

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_offset_at_fetch <= offset:
            # It has reached the log end offset of its last fetch, so it was caught up then.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_offset_at_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = offset


@mutable
class Parked:
    """A delayed fetch: it waits for records, for a higher high watermark, or for its timeout."""

    reply_to: object
    fetch: Fetch
    deadline_ms: int

    def wants(self, end_offset: int, high_watermark: int) -> bool:
        return self.fetch.log_end.offset < end_offset or (
            self.fetch.high_watermark != HIGH_WATERMARK_UNKNOWN and self.fetch.high_watermark < high_watermark
        )


@mutable
class PendingChange:
    """The change of the voter set in progress (at most one), and the request that waits for it."""

    reply_to: object
    deadline_ms: int
    #: The record's offset once it is appended; before that an added voter's versions are requested (`probe_id`).
    offset: int = -1
    add: AddVoter | None = None
    probe_id: int = -1


@mutable
class Leader:
    epoch: int
    own_key: ReplicaKey
    #: The offset of this epoch's first record.
    epoch_start_offset: int
    granting_voters: tuple[ReplicaKey, ...]
    check_quorum_ms: int
    check_quorum_deadline_ms: int
    begin_epoch_ms: int
    begin_epoch_deadline_ms: int
    high_watermark: int = -1
    voters: dict[int, Progress] = field(default_factory=dict)
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    parked: list[Parked] = field(default_factory=list)
    change: PendingChange | None = None
    resign_requested: bool = False
    _fetched_since_check: set[int] = field(default_factory=set)

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.own_key.id)

    def deadline_ms(self, is_voter: bool) -> int:
        deadlines = [parked.deadline_ms for parked in self.parked]
        if self.needs_check_quorum:
            deadlines += (self.check_quorum_deadline_ms, self.begin_epoch_deadline_ms)
        if self.change is not None:
            deadlines.append(self.change.deadline_ms)
        return min(deadlines, default=NEVER)

    def can_grant_vote(self, candidate: ReplicaKey, log_is_up_to_date: bool, pre_vote: bool) -> bool:
        return False

    def set_voters(self, voter_set: VoterSet) -> None:
        """Apply a new voter set; the progress of remaining replicas is kept."""
        known = {**self.observers, **{progress.key: progress for progress in self.voters.values()}}
        by_id = {progress.key.id: progress for progress in self.voters.values()}
        voters: dict[int, Progress] = {}
        for voter in voter_set:
            progress = known.get(voter.key)
            if progress is None and voter.id in by_id and not by_id[voter.id].key.knows_directory:
                # The new voter set has the directory id of a voter that was known by its node id alone.
                progress = by_id[voter.id]
                progress.key = voter.key
            voters[voter.id] = progress or Progress(voter.key)
        kept = {id(progress) for progress in voters.values()}
        self.observers = {
            progress.key: progress
            for progress in known.values()
            if id(progress) not in kept and progress.key.id != self.own_key.id
        }
        self.voters = voters
        self._fetched_since_check &= set(voters)

    def progress_of(self, replica: ReplicaKey, now_ms: int) -> Progress:
        if self.is_counted(replica):
            return self.voters[replica.id]
        if replica not in self.observers:
            # Each restart with a new disk is another replica; without this, the old ones would be kept as long as this leader leads.
            self.forget_silent_observers(now_ms)
        return self.observers.setdefault(replica, Progress(replica))

    def is_counted(self, replica: ReplicaKey) -> bool:
        voter = self.voters.get(replica.id)
        if voter is None:
            return False
        if voter.key.knows_directory:
            return voter.key == replica
        return voter.directory_id in (ZERO_UUID, replica.directory_id)

    def admit(self, replica: ReplicaKey, now_ms: int) -> None:
        """Return True if a fetch may be counted. With a duplicate node.id, only the fetches of the first directory count: otherwise
        a majority of fetches would not be a majority of disks."""
        voter = self.voters.get(replica.id)
        if voter is None or voter.key.knows_directory or not replica.knows_directory:
            return
        is_silent = now_ms - voter.last_fetch_ms > self.check_quorum_ms
        if voter.directory_id == ZERO_UUID or is_silent:
            voter.directory_id = replica.directory_id

    def record_local_end(self, flushed_offset: int) -> bool:
        """Record the own flushed offset. Return True if the high watermark advanced."""
        own = self.voters.get(self.own_key.id)
        if own is not None and self.is_counted(self.own_key):
            own.end_offset = flushed_offset
        return self._advance()

    def record_fetch(self, replica: ReplicaKey, offset: int, log_end_offset: int, now_ms: int) -> bool:
        """Record a fetch. Return True if the high watermark advanced."""
        self.admit(replica, now_ms)
        self.progress_of(replica, now_ms).fetched(offset, log_end_offset, now_ms)
        self.record_contact(replica, now_ms)
        return self.is_counted(replica) and self._advance()

    def record_contact(self, replica: ReplicaKey, now_ms: int) -> None:
        """Count a fetch for check-quorum."""
        if not self.is_counted(replica):
            return
        self._fetched_since_check.add(replica.id)
        needed = len(self.voters) // 2 + 1 - self.is_counted(self.own_key)
        if len(self._fetched_since_check) >= needed:
            self._fetched_since_check.clear()
            self.check_quorum_deadline_ms = now_ms + self.check_quorum_ms

    @property
    def needs_check_quorum(self) -> bool:
        return len(self.voters) > 1 or not self.is_counted(self.own_key)

    def silent_voters(self, now_ms: int) -> list[int]:
        """Return the voters without recent fetches, to which BeginQuorumEpoch is sent (again)."""
        return [
            progress.key.id
            for progress in self.voters.values()
            if progress.key.id != self.own_key.id
            and (progress.last_fetch_ms < 0 or now_ms - progress.last_fetch_ms >= self.begin_epoch_ms)
        ]

    def voters_by_descending_end(self) -> list[Progress]:
        return sorted(self.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.id))

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the preferred successors, the most advanced voter first."""
        return tuple(p.key for p in self.voters_by_descending_end() if p.key.id != self.own_key.id)

    def forget_silent_observers(self, now_ms: int) -> None:
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if now_ms - progress.last_fetch_ms < OBSERVER_SESSION_MS
        }

    def is_caught_up(self, replica: ReplicaKey, now_ms: int) -> bool:
        progress = self.observers.get(replica)
        return (
            progress is not None
            and 0 <= now_ms - progress.last_caught_up_ms < CAUGHT_UP_MS
            and (progress.last_caught_up_ms >= 0)
        )

    def _advance(self) -> bool:
        if not self.voters:
            return False
        reached = self.voters_by_descending_end()[len(self.voters) // 2].end_offset
        # A change of the voter set can lower it; committed records stay committed.
        if reached <= self.epoch_start_offset or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
