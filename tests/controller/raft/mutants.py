"""Known mistakes in Raft, put into the core. Each must be noticed by its consequence: an invariant that it breaks. A check that
repeats the omitted rule does not count, and neither does an exception of the mutant itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.controller.raft import elections, log_state, reconfiguration, replication, roles, transitions
from ottla.controller.raft.leader import Leader, Progress
from ottla.controller.raft.log_state import LogState
from ottla.controller.raft.quorum_state import QuorumState
from tests.controller.raft.cluster import Replica

Patch = pytest.MonkeyPatch


def vote_is_not_durable(patch: Patch) -> None:
    write = Replica.apply

    def apply(self: Replica, effects: Any) -> None:
        if effects.election is not None and effects.election.voted is not None:
            checked, effects.election = effects.election, None
            self.cluster.checks.on_election(self, checked)
        write(self, effects)

    patch.setattr(Replica, "apply", apply)


def watermark_without_a_record_of_the_own_epoch(patch: Patch) -> None:
    """A record on a majority is replaced by another leader all the same: figure 8 of the Raft paper."""

    def advance(self: Leader) -> bool:
        reached = self.voters_by_descending_end()[len(self.voters) // 2].end_offset
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    patch.setattr(Leader, "_advance", advance)


def fetching_before_the_flush(patch: Patch) -> None:
    patch.setattr(LogState, "is_flushed", property(lambda self: True))


def leader_counts_itself_before_the_flush(patch: Patch) -> None:
    append, record = transitions.append_batch, Leader.record_local_end

    def append_and_count(state: QuorumState, count: int, data: Any) -> int:
        last = append(state, count, data)
        if isinstance(state.role, Leader) and state.key.id in state.role.voters:
            state.role.voters[state.key.id].end_offset = state.log.end_offset
        return last

    def keep(self: Leader, offset: int) -> bool:
        own = self.voters.get(self.own_key.id)
        return record(self, max(offset, own.end_offset if own else -1))

    patch.setattr(transitions, "append_batch", append_and_count)
    patch.setattr(Leader, "record_local_end", keep)


def votes_for_logs_that_are_behind(patch: Patch) -> None:
    patch.setattr(log_state.OffsetAndEpoch, "is_up_to_date_with", lambda self, other: True)


def votes_twice_in_an_epoch(patch: Patch) -> None:
    patch.setattr(roles.Unattached, "can_grant_vote", lambda self, candidate, up_to_date, pre_vote: up_to_date)


def a_restarted_leader_may_vote_in_its_epoch(patch: Patch) -> None:
    """A leader forgets that it led. A thousand seeds do not reach this case, so test_simulation.py makes it by hand."""
    initial = elections.initial_role

    def start(state: Any, election: Any, now_ms: int) -> Any:
        role = initial(state, election, now_ms)
        return roles.Unattached(role.epoch, now_ms) if isinstance(role, roles.Resigned) else role

    patch.setattr(elections, "initial_role", start)


def divergence_is_not_looked_for(patch: Patch) -> None:
    patch.setattr(LogState, "validate", lambda self, fetched: None)


def a_majority_is_half(patch: Patch) -> None:
    patch.setattr(roles.Votes, "majority", property(lambda self: max(1, len(self.voters) // 2)))


def a_removed_voter_gives_up_at_once(patch: Patch) -> None:
    patch.setattr(QuorumState, "is_voter", property(lambda self: self.voters.last.is_voter(self.key)))


def candidates_vote_for_others(patch: Patch) -> None:
    patch.setattr(roles.Candidate, "can_grant_vote", lambda self, candidate, up_to_date, pre_vote: up_to_date)


def a_pre_vote_counts_as_a_vote(patch: Patch) -> None:
    """A node leads as soon as it has enough pre-votes."""
    become = transitions.become_candidate

    def lead(state: Any, now_ms: int) -> None:
        granted = set(state.role.votes.granted)
        become(state, now_ms)
        state.role.votes.granted |= granted

    patch.setattr(transitions, "become_candidate", lead)


def observers_count_for_the_majority(patch: Patch) -> None:
    def everybody(self: Leader) -> list[Progress]:
        known = [*self.voters.values(), *self.observers.values()]
        return sorted(known, key=lambda progress: (-progress.end_offset, progress.key.id))

    patch.setattr(Leader, "voters_by_descending_end", everybody)


def half_of_the_voters_commit(patch: Patch) -> None:
    def advance(self: Leader) -> bool:
        if not self.voters:
            return False
        reached = self.voters_by_descending_end()[max(0, len(self.voters) // 2 - 1)].end_offset
        if reached <= self.epoch_start_offset or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    patch.setattr(Leader, "_advance", advance)


def a_flush_of_before_a_truncation_counts(patch: Patch) -> None:
    flushed = replication.on_flushed

    def count(state: Any, generation: int, offset: int, now_ms: int) -> None:
        flushed(state, state.log.generation, offset, now_ms)

    patch.setattr(replication, "on_flushed", count)


def voters_change_before_the_last_change_is_committed(patch: Patch) -> None:
    patch.setattr(reconfiguration, "_check_state", lambda state: None)


def epochs_of_a_truncated_log_stay(patch: Patch) -> None:
    truncate = LogState.truncate_to

    def keep(self: LogState, offset: int) -> None:
        epochs = list(self.epochs)
        truncate(self, offset)
        self.epochs = [entry for entry in epochs if entry[1] <= offset]

    patch.setattr(LogState, "truncate_to", keep)


def the_epoch_of_the_log_is_forgotten(patch: Patch) -> None:
    """Let a restarted replica begin with the epoch of its log, and forget a later durable epoch."""
    patch.setattr(
        elections, "initial_role", lambda state, election, now_ms: roles.Unattached(state.log.last_epoch, now_ms)
    )


@dataclass(frozen=True)
class Mutant:
    put_in: Callable[[Patch], None]
    #: The invariants of which one must notice the mutant.
    by: frozenset[str]
    #: Options of the simulation: with five voters, or one batch per fetch, its seeds reach the mistake more often.
    options: Mapping[str, Any] = field(default_factory=dict)


def _mutant(put_in: Callable[[Patch], None], by: str, **options: Any) -> tuple[str, Mutant]:
    return put_in.__name__, Mutant(put_in, frozenset(by.split()), options)


#: Two leaders of one epoch soon have two records at one offset, so a break of invariant 18 leads to breaks of invariants 4 and
#: 19.
MUTANTS = dict(
    (
        _mutant(vote_is_not_durable, "18"),
        _mutant(watermark_without_a_record_of_the_own_epoch, "4 19", voters=5, batches_per_fetch=1),
        _mutant(fetching_before_the_flush, "1 4 19"),
        _mutant(leader_counts_itself_before_the_flush, "1 4 19"),
        _mutant(votes_for_logs_that_are_behind, "1 4 19"),
        _mutant(votes_twice_in_an_epoch, "18"),
        _mutant(divergence_is_not_looked_for, "1 4 19 21"),
        _mutant(a_majority_is_half, "4 18 19"),
        _mutant(a_removed_voter_gives_up_at_once, "54"),
        _mutant(candidates_vote_for_others, "18"),
        _mutant(a_pre_vote_counts_as_a_vote, "4 18 19"),
        _mutant(observers_count_for_the_majority, "1 4 19"),
        _mutant(half_of_the_voters_commit, "1 4 19"),
        _mutant(a_flush_of_before_a_truncation_counts, "1 4 19", voters=3, batches_per_fetch=1, flush_ms_max=300),
        _mutant(voters_change_before_the_last_change_is_committed, "1 4 18 19", dynamic=True, voters=3),
        _mutant(epochs_of_a_truncated_log_stay, "1 4 19 21 54"),
        _mutant(the_epoch_of_the_log_is_forgotten, "18"),
    )
)
