"""The short form of the kill -9 run on three nodes, two or all of them at once; a file of its own, for a worker of its own."""

import pytest

from tests.chaos import cluster_cycles


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_two_or_all_nodes_killed_at_once_five_times_lose_double_and_reorder_nothing_and_replicas_end_up_equal() -> None:
    verdict = cluster_cycles.run(cycles=5, seed=5, kinds=cluster_cycles.TOGETHER)
    assert verdict.problems == []
    assert set(verdict.kills) == set(cluster_cycles.TOGETHER)
    assert verdict.acknowledged > 1000, "the load was too small to show anything"
