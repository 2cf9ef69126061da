"""Each guard of mutants.py is missed by a test of hostile clients when it is away."""

from __future__ import annotations

import pytest

from tests.broker.replication.mutants import ROOT, Copy, Mutant
from tests.effort import NOT_HERE
from tests.ottla.web.mutants import MUTANTS

#: What pytest says: tests failed. Anything else, such as a test that is not there, is a mistake in the table.
TESTS_FAILED = 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutants") / "code")


#: Each mutant is a process: `make test` has every third, and `make chaos` all.
PLAYED = MUTANTS if NOT_HERE is None else MUTANTS[::3]


@pytest.mark.chaos
@pytest.mark.parametrize("mutant", PLAYED, ids=lambda mutant: mutant.text)
def test_the_missing_guard_is_noticed(copy: Copy, mutant: Mutant) -> None:
    done = copy.run(mutant, [mutant.noticed_by])
    assert done.returncode == TESTS_FAILED, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.chaos
def test_each_mutant_is_another_one() -> None:
    assert len({mutant.text for mutant in MUTANTS}) == len({(m.path, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all((ROOT / mutant.path).read_text().count(mutant.old) == 1 for mutant in MUTANTS)
