"""The choices of seeds: there are faults only where the documents promise that these lose no data."""

from __future__ import annotations

import random

from tests.sim.plan import choose
from tests.sim.scenes import staged

SEEDS = 500


def test_only_a_voter_of_several_starts_while_its_disk_is_not_mounted() -> None:
    """A quorum of one formats its empty directories by itself: without its disk it is another cluster."""
    plans = [staged(choose(random.Random(seed), seed), seed) for seed in range(SEEDS)]
    unmounting = [plan for plan in plans if plan.unmounts]
    assert len(unmounting) > SEEDS // 10
    for plan in unmounting:
        assert sum("controller" in role for role in plan.roles.values()) > 1, plan.describe()
        assert not plan.first_voters, plan.describe()
