"""Seeded histories of the metadata quorum, of one voter and of three: crashes, power losses, cuts and bad disks.

OTTLA_SIM_SEEDS=5000 runs that many, OTTLA_SIM_SEED=17 one of them; a failure prints what happened last.
"""

from __future__ import annotations

import os

import pytest

from tests.effort import seeds
from tests.sim.raft_history import run_raft_history

SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", seeds(8, long=30)))
ONE_SEED = os.environ.get("OTTLA_SIM_SEED")


def chosen() -> range:
    return range(SEEDS) if ONE_SEED is None else range(int(ONE_SEED), int(ONE_SEED) + 1)


@pytest.mark.parametrize("voters", [1, 3], ids=lambda voters: f"of_{voters}")
def test_histories_of_a_quorum(voters: int) -> None:
    for seed in chosen():
        run_raft_history(seed, voters)


def test_a_seed_makes_one_history_only() -> None:
    assert run_raft_history(5, 3).trace == run_raft_history(5, 3).trace
