"""Random histories of a group, and the proof that they notice mistakes."""

from __future__ import annotations

import pytest

from tests.broker.groups.history import History
from tests.broker.groups.mutants import MUTANTS
from tests.effort import seeds
from tests.histories import assert_noticed, parts, play


def run(seed: int) -> None:
    History(seed).run()


def is_noticed(name: str, seed: int) -> bool:
    return MUTANTS[name].is_noticed(lambda: run(seed))


@pytest.mark.parametrize("seeds", parts(seeds(100, long=400), 100), ids=str)
def test_nothing_promised_is_broken_by_these_seeds(seeds: range) -> None:
    play(run, seeds)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_known_mistake_is_noticed(name: str) -> None:
    assert_noticed("groups", name, is_noticed)
