"""Random histories of transactional ids, and the proof that they notice mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.coordinator.mutant import noticed_by
from tests.broker.transactions.admissions import Admissions
from tests.broker.transactions.history import History
from tests.broker.transactions.mutants import ADMISSION_MUTANTS, MUTANTS
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
    _, number = noticed_by(MUTANTS[name], run, monkeypatch, seeds_for("transactions", name))
    assert number in MUTANTS[name].numbers


def test_no_leader_appends_to_a_transaction_without_a_coordinator_that_ends_it(tmp_path: Path) -> None:
    for seed in range(40):
        Admissions(seed, tmp_path / str(seed)).run()


@pytest.mark.parametrize("name", ADMISSION_MUTANTS)
def test_a_known_mistake_of_a_leader_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = ADMISSION_MUTANTS[name]

    def run_admissions(seed: int) -> None:
        Admissions(seed, tmp_path / str(seed)).run()

    _, number = noticed_by(mutant, run_admissions, monkeypatch, seeds_for("admissions", name))
    assert number in mutant.numbers
