"""Random histories of a group, and the proof that they notice mistakes."""

from __future__ import annotations

import pytest

from tests.broker.coordinator.mutant import noticed_by
from tests.broker.groups.history import History
from tests.broker.groups.mutants import MUTANTS
from tests.effort import seeds
from tests.sim.noticed import seeds_for

SEEDS, SEEDS_PER_TEST = seeds(100, long=400), 100


def run(seed: int) -> None:
    History(seed).run()


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_nothing_promised_is_broken_by_these_seeds(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        try:
            run(seed)
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


@pytest.mark.parametrize("name", MUTANTS)
def test_a_known_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, number = noticed_by(MUTANTS[name], run, monkeypatch, seeds_for("groups", name))
    assert number in MUTANTS[name].numbers
