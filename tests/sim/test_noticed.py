"""The table of the seeds that notice mutants, with which the tests of mutants begin."""

from __future__ import annotations

import pytest

from tests.sim.measure_mutants import FAMILIES
from tests.sim.noticed import NOT_NOTICED, SEEDS_MAX, rows

#: Families whose runs are short enough: all of their mutants are measured with each change.
WHOLE = (
    "storage",
    "cleaner",
    "threads",
    "moves",
    "groups",
    "one consumer group",
    "one streams group",
    "one share partition",
    "transactions",
    "admissions",
    "raft",
    "walks",
    "mirror",
)


def test_each_row_is_of_a_mutant_and_within_the_seeds() -> None:
    for family, name, seed in rows():
        if family in FAMILIES:  # one is there only with pyarrow
            assert name in FAMILIES[family].names
        assert NOT_NOTICED <= seed < SEEDS_MAX


@pytest.mark.parametrize("family", WHOLE)
def test_seeds_alone_notice_each_mutant(family: str) -> None:
    noticed = {name for row_family, name, seed in rows() if row_family == family and seed != NOT_NOTICED}
    assert noticed == set(FAMILIES[family].names)
