"""Whole quorums under faults, by seed. RAFT_SEEDS sets the number of seeds, RAFT_FIRST_SEED the first one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from ottla.controller.raft.core import RaftCore
from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import Received, Vote
from ottla.controller.raft.voters import ReplicaKey, VoterHistory
from tests.controller.raft.cluster import directory_of, make_config, static_voters
from tests.controller.raft.mutants import MUTANTS, a_restarted_leader_may_vote_in_its_epoch
from tests.controller.raft.simulation import run
from tests.effort import seeds
from tests.histories import Violation, assert_noticed, each_mistake, parts

SEEDS = int(os.environ.get("RAFT_SEEDS", seeds(50, long=300)))
FIRST_SEED = int(os.environ.get("RAFT_FIRST_SEED", "0"))


@pytest.mark.parametrize("seeds", parts(SEEDS, 50), ids=str)
def test_acknowledged_records_survive_crashes_cuts_and_reconfiguration(seeds: range) -> None:
    acknowledged = sum(len(run(FIRST_SEED + seed).acked) for seed in seeds)
    assert acknowledged > len(seeds), "a simulation in which nothing is ever acknowledged proves nothing"


def test_a_seed_runs_the_same_way_twice() -> None:
    assert run(7).cluster.log == run(7).cluster.log


@contextmanager
def mutated(put_in: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        put_in(patch)
        yield


def is_noticed(name: str, seed: int) -> bool:
    """Return whether the mutant breaks one of its invariants. A check of the omitted rule, another invariant, or an exception
    of the mutant itself does not count.
    """
    mutant = MUTANTS[name]
    with mutated(mutant.put_in):
        try:
            run(seed, rules=False, **mutant.options)
        except Violation as violation:
            return violation.number in mutant.by
        except Exception:
            return False
    return False


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_the_simulation_notices(name: str) -> None:
    assert_noticed("raft", name, is_noticed)


def vote_for_another_after_a_restart_of_the_leader() -> bool:
    """Return whether a restarted leader of epoch 5 votes for a candidate of that epoch, whose request was delayed until then:
    with this vote the candidate would lead the epoch, too.
    """
    config = make_config(1, static_voters(1, 2, 3))
    log = LogState(0, 10, [(4, 0)], [], 10)
    core = RaftCore(config, log, VoterHistory(config.static_voters), ElectionState(5, 1), Random(1), 0)
    core.tick(0)
    vote = Vote(None, None, 5, ReplicaKey(3, directory_of(3)), OffsetAndEpoch(10, 4))
    (reply,) = core.step(Received(vote, "him"), 1).replies
    return bool(reply.body.granted)


def test_a_leader_that_restarts_grants_no_vote_in_its_epoch() -> None:
    assert not vote_for_another_after_a_restart_of_the_leader()
    with mutated(a_restarted_leader_may_vote_in_its_epoch):
        assert vote_for_another_after_a_restart_of_the_leader()
