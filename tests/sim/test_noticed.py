"""The table of which seed notices which mutant is whole, and says what docs/SIMULATOR.md promises."""

from __future__ import annotations

from tests.sim.measure_mutants import FAMILIES
from tests.sim.noticed import NOT_NOTICED, rows

SHARE_MIN = 0.95


def test_each_mutant_has_a_row() -> None:
    measured = [row[:2] for row in rows()]
    assert sorted(measured) == sorted((family, name) for family in FAMILIES for name in FAMILIES[family].names)


def test_seeds_alone_notice_nearly_all_mutants() -> None:
    found = [row for row in rows() if row[2] != NOT_NOTICED]
    assert len(found) >= SHARE_MIN * len(rows())
