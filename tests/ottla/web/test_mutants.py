"""When a guard of mutants.py is removed, a test of hostile clients notices that."""

from __future__ import annotations

import pytest

from tests.broker.replication.mutants import ROOT, Copy, Mutant
from tests.histories import each_mistake
from tests.ottla.web.mutants import MUTANTS

#: pytest's exit code for failed tests. Any other one, for example for a test that does not exist, means a mistake in the table.
TESTS_FAILED = 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutants") / "code")


@pytest.mark.parametrize("mutant", each_mistake(MUTANTS), ids=lambda mutant: mutant.text)
def test_the_missing_guard_is_noticed(copy: Copy, mutant: Mutant) -> None:
    done = copy.run(mutant, [mutant.noticed_by])
    assert done.returncode == TESTS_FAILED, done.stdout[-3000:] + done.stderr[-1000:]


def test_each_mutant_is_another_one() -> None:
    assert len({mutant.text for mutant in MUTANTS}) == len({(m.path, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all((ROOT / mutant.path).read_text().count(mutant.old) == 1 for mutant in MUTANTS)
