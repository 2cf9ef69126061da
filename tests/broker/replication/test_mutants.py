"""Each mutant of mutants.py is noticed by its test, which passes without it."""

from __future__ import annotations

import pytest

from tests.broker.replication.mutants import MUTANTS, ROOT, Copy, Mutant
from tests.histories import each_mistake

#: What pytest says: tests failed. Anything else, such as a test that is not there, is a mistake in the table.
TESTS_FAILED = 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutants") / "code")


@pytest.mark.parametrize("mutant", each_mistake(MUTANTS), ids=lambda mutant: mutant.text)
def test_the_mutant_is_noticed(copy: Copy, mutant: Mutant) -> None:
    done = copy.run(mutant, [mutant.noticed_by])
    assert done.returncode == TESTS_FAILED, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.chaos
def test_without_a_mutant_the_same_tests_pass(copy: Copy) -> None:
    done = copy.run(None, sorted({mutant.noticed_by for mutant in MUTANTS}))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_each_mutant_is_another_one() -> None:
    assert len({mutant.text for mutant in MUTANTS}) == len({(m.path, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all((ROOT / mutant.path).read_text().count(mutant.old) == 1 for mutant in MUTANTS)
