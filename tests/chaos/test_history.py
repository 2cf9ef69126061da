"""The judge notices what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.chaos.history import UNKNOWN_OFFSET, Place, Record, broken_promises

FIRST, SECOND = Record(0, 0), Record(0, 4)
AT_0, AT_1, AT_2 = Place(0, 0), Place(0, 1), Place(0, 2)
ACKNOWLEDGED = {FIRST: AT_0, SECOND: AT_1}


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({FIRST: [AT_0]}, "1 lost"),
        ({FIRST: [AT_0], SECOND: [AT_1, AT_2]}, "1 doubled"),
        ({FIRST: [AT_0], SECOND: [AT_2]}, "1 moved"),
        ({FIRST: [AT_2], SECOND: [AT_1]}, "stands behind number 4"),
    ],
)
def test_a_broken_promise_has_a_name(places: dict[Record, list[Place]], problem: str) -> None:
    assert any(problem in found for found in broken_promises(ACKNOWLEDGED, places))


def test_a_log_as_it_was_acknowledged_has_no_problem_nor_has_a_record_without_acknowledgement() -> None:
    assert broken_promises(ACKNOWLEDGED, {FIRST: [AT_0], SECOND: [AT_1], Record(1, 0): [AT_2]}) == []


def test_an_acknowledgement_without_an_offset_promises_that_the_record_is_there_and_not_where() -> None:
    acknowledged = {FIRST: Place(0, UNKNOWN_OFFSET), SECOND: AT_1}
    assert broken_promises(acknowledged, {FIRST: [AT_0], SECOND: [AT_1]}) == []
    assert "1 lost" in broken_promises(acknowledged, {SECOND: [AT_1]})[0]
