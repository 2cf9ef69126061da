"""The short form of the kill -9 run on three nodes, one node at a time; 200 accidents of all kinds are in `make chaos`."""

import pytest

from tests.chaos import cluster_cycles


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_leader_follower_or_controller_killed_six_times_lose_double_and_reorder_nothing_and_replicas_end_up_equal() -> (
    None
):
    verdict = cluster_cycles.run(cycles=6, seed=6, kinds=cluster_cycles.SINGLE)
    assert verdict.problems == []
    assert set(verdict.kills) == set(cluster_cycles.SINGLE)
    assert verdict.acknowledged > 1000, "the load was too small to show anything"
