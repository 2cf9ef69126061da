"""The short form of the kill -9 run; the long one is `make chaos`."""

import pytest

from tests.chaos import kill_cycles


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_node_killed_ten_times_under_idempotent_load_loses_and_doubles_nothing() -> None:
    verdict = kill_cycles.run(cycles=10, seed=1)
    assert verdict.problems == []
    assert verdict.acknowledged > 1000, "the load was too small to show anything"
    # A restart takes 0.4 to 0.9 s on an idle machine. The fastest one counts: a restart that waits for a time-out does so each
    # time.
    assert min(verdict.restart_seconds) < 5.0
