"""Snapshots under load: transactions and groups are all or nothing in each fork; long in `make chaos`."""

import pytest

from tests.chaos import snapshots
from tests.effort import LONG


@pytest.mark.timeout(600)
def test_forks_of_a_cluster_under_load_have_whole_transactions_and_all_that_was_acknowledged() -> None:
    taken, nodes, count = (12, 3, 200_000) if LONG else (1, 1, 30_000)
    verdict = snapshots.run(snapshots=taken, count=count, seed=1, nodes=nodes)
    assert verdict.problems == []
    assert len(verdict.fences_ms) == taken
    assert len(verdict.rewound) == taken
    assert all(0 < copied < count for copied in verdict.committed), "they are of the middle of the copying"
