"""Random histories of transactional ids, and the proof that they notice mistakes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.broker.transactions.admissions import Admissions
from tests.broker.transactions.history import History
from tests.broker.transactions.mutants import ADMISSION_MUTANTS, MUTANTS
from tests.effort import seeds
from tests.histories import assert_noticed, parts, play


def run(seed: int) -> None:
    History(seed).run()


def admit(seed: int) -> None:
    with TemporaryDirectory() as directory:
        Admissions(seed, Path(directory)).run()


def is_noticed(name: str, seed: int) -> bool:
    return MUTANTS[name].is_noticed(lambda: run(seed))


def is_noticed_by_admissions(name: str, seed: int) -> bool:
    return ADMISSION_MUTANTS[name].is_noticed(lambda: admit(seed))


@pytest.mark.parametrize("seeds", parts(seeds(100, long=400), 100), ids=str)
def test_nothing_promised_is_broken_by_these_seeds(seeds: range) -> None:
    play(run, seeds)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_known_mistake_is_noticed(name: str) -> None:
    assert_noticed("transactions", name, is_noticed)


def test_no_leader_appends_to_a_transaction_without_a_coordinator_that_ends_it() -> None:
    play(admit, range(seeds(40, long=40)))


@pytest.mark.parametrize("name", ADMISSION_MUTANTS)
def test_a_known_mistake_of_a_leader_is_noticed(name: str) -> None:
    assert_noticed("admissions", name, is_noticed_by_admissions)
