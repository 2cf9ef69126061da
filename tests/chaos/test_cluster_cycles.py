"""The short form of the kill -9 run on three nodes; `make chaos` is for the single node."""

import pytest

from tests.chaos import cluster_cycles


@pytest.mark.timeout(300)
def test_three_nodes_killed_one_at_a_time_lose_double_and_reorder_nothing_and_end_up_equal() -> None:
    verdict = cluster_cycles.run(cycles=10, seed=1)
    assert verdict.problems == []
    assert verdict.acknowledged > 1000, "the load was too small to show anything"
