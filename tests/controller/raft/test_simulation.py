"""Whole quorums under faults, by seed. RAFT_SEEDS sets how many, RAFT_FIRST_SEED where to begin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controller.raft import elections, log_state, states
from controller.raft.leader import Leader
from controller.raft.log_state import LogState
from tests.controller.raft.cluster import Replica
from tests.controller.raft.simulation import run

SEEDS = int(os.environ.get("RAFT_SEEDS", "300"))
FIRST_SEED = int(os.environ.get("RAFT_FIRST_SEED", "0"))
PER_TEST = 50


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, PER_TEST))
def test_acknowledged_records_survive_crashes_cuts_and_reconfiguration(first: int) -> None:
    acknowledged = sum(len(run(seed).acked) for seed in range(first, first + PER_TEST))
    assert acknowledged > PER_TEST, "a simulation in which nothing is ever acknowledged proves nothing"


def test_a_seed_runs_the_same_way_twice() -> None:
    assert run(7).cluster.log == run(7).cluster.log


# Known ways to get Raft wrong. Each must be noticed, or the simulation is not worth its time.


def vote_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    write = Replica.apply

    def apply(self: Replica, effects: Any) -> None:
        if effects.election is not None and effects.election.voted is not None:
            checked, effects.election = effects.election, None
            self.cluster.checks.on_election(self, checked)
        write(self, effects)

    patch.setattr(Replica, "apply", apply)


def watermark_without_a_record_of_the_own_epoch(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leader) -> bool:
        reached = self.voters_by_descending_end()[len(self.voters) // 2].end_offset
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    patch.setattr(Leader, "_advance", advance)


def fetching_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogState, "is_flushed", property(lambda self: True))


def leader_counts_itself_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    record = Leader.record_local_end
    patch.setattr(Leader, "record_local_end", lambda self, offset: record(self, 1 << 40))


def votes_for_logs_that_are_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_state.OffsetAndEpoch, "is_up_to_date_with", lambda self, other: True)


def votes_twice_in_an_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states.Unattached, "can_grant_vote", lambda self, candidate, up_to_date, pre_vote: up_to_date)


def a_restarted_leader_leads_on(patch: pytest.MonkeyPatch) -> None:
    initial = elections.initial_role

    def start(core: Any, election: Any, now_ms: int) -> Any:
        role = initial(core, election, now_ms)
        if isinstance(role, states.Resigned):
            return states.Unattached(role.epoch - 1, now_ms)
        return role

    patch.setattr(elections, "initial_role", start)


def divergence_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogState, "validate", lambda self, fetched: log_state.VALID)


def a_majority_is_half(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states.Votes, "majority", property(lambda self: max(1, len(self.voters) // 2)))


def a_removed_voter_gives_up_at_once(patch: pytest.MonkeyPatch) -> None:
    from controller.raft.core import RaftCore

    patch.setattr(RaftCore, "is_voter", property(lambda self: self.voters.last.is_voter(self.key)))


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    vote_is_not_durable,
    watermark_without_a_record_of_the_own_epoch,
    fetching_before_the_flush,
    leader_counts_itself_before_the_flush,
    votes_for_logs_that_are_behind,
    votes_twice_in_an_epoch,
    a_restarted_leader_leads_on,
    divergence_is_not_looked_for,
    a_majority_is_half,
    a_removed_voter_gives_up_at_once,
]
MUTANT_SEEDS_MAX = 2000


@contextmanager
def mutated(mutant: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        yield


def seeds_until_caught(mutant: Callable[[pytest.MonkeyPatch], None]) -> int | None:
    with mutated(mutant):
        for seed in range(MUTANT_SEEDS_MAX):
            try:
                run(seed)
            except Exception:
                return seed + 1
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_catches(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert seeds_until_caught(mutant) is not None, f"{MUTANT_SEEDS_MAX} seeds did not notice: {mutant.__name__}"
