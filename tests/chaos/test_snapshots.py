"""Snapshots under load: transactions and groups are all or nothing in each fork; long in `make chaos`."""

import pytest

from tests.chaos import snapshots
from tests.effort import LONG


@pytest.mark.timeout(600)
def test_forks_of_a_cluster_under_load_have_whole_transactions_and_all_that_was_acknowledged() -> None:
    taken, nodes = (12, 3) if LONG else (2, 1)
    verdict = snapshots.run(snapshots=taken, count=100_000, seed=1, nodes=nodes)
    assert verdict.problems == []
    assert len(verdict.fences_ms) == taken
    assert 0 < verdict.committed[0] < verdict.committed[-1] < 100_000, "snapshots are of the middle of the copying"
