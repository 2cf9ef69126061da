"""Seeded histories of a node's logs with faults in the middle of operations: whatever happens, what was promised is there.

OTTLA_SIM_SEEDS=5000 runs that many, OTTLA_SIM_SEED=17 one of them; a failure prints what happened last.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.effort import seeds
from tests.histories import parts
from tests.sim.directed_histories import run_histories

SEEDS = int(os.environ.get("OTTLA_SIM_SEEDS", seeds(8, long=400)))
ONE_SEED = os.environ.get("OTTLA_SIM_SEED")
FAULTS = frozenset(
    {
        "power loss",
        "kill",
        "failure",
        "full",
        "died while starting",
        "clean True",
        "clean False",
        "meanwhile",
        "damage: recovered",
        "damage: damage met",
        "damage: partition offline",
        "damage: directory offline",
    }
)


def ranges() -> list[range]:
    if ONE_SEED is not None:
        return [range(int(ONE_SEED), int(ONE_SEED) + 1)]
    return parts(SEEDS, 20)


@cache
def met(seed: int) -> frozenset[str]:
    """The kinds of faults in a seed's histories, none of which may break a guarantee."""
    seen = "\n".join(run_histories(seed)[0].trace)
    return frozenset(what for what in FAULTS if what in seen)


@pytest.mark.parametrize("seeds", ranges(), ids=str)
def test_histories(seeds: range) -> None:
    for seed in seeds:
        met(seed)


def test_a_seed_makes_one_history_only() -> None:
    first, second = run_histories(7), run_histories(7)
    for one, other in zip(first, second, strict=True):
        assert one.trace == other.trace
        assert one.disk.tree() == other.disk.tree()


def test_histories_meet_every_kind_of_fault() -> None:
    """A test harness that finds no faults may have produced none."""
    missing = FAULTS
    for seed in range(60):
        missing -= met(seed)
        if not missing:
            return
    raise AssertionError(f"no history has {sorted(missing)}")
