"""Failover, the short form: how long writes and decisions stop. Figures of 20 samples each are in `make chaos`.

The limits are what a busy machine needs, not what is promised (failover.py); Kafka needs 14 s for the first.
"""

import pytest

from ottla.testing import Cluster
from tests.chaos.failover import Samples, take_sample

pytestmark = pytest.mark.timeout(240)


def test_writes_and_decisions_go_on_soon_after_a_leader_dies_or_leaves_and_after_a_controller_dies() -> None:
    seconds = {}
    with Cluster(3) as cluster:
        for what in ("first-record", "kill-leader", "term-leader", "kill-controller"):
            samples = Samples()
            take_sample(cluster, what, what, samples)
            assert samples.problems == []
            seconds[what] = samples.max
    # librdkafka looks for a new leader each second when it asked in the very moment of the change.
    assert seconds["kill-leader"] < 2.5
    assert seconds["term-leader"] < 2.5
    # Without the hint of the lost connections it would be the session's 9 s.
    assert seconds["kill-controller"] < 8.5
    assert seconds["first-record"] < 0.4
