"""Power failures in their short form: the page cache is lost, but no acknowledged record. The long form is in `make chaos`."""

import pytest

from tests.chaos import power_loss
from tests.chaos.disks import needs_image_disks

pytestmark = [pytest.mark.timeout(300), needs_image_disks]


@pytest.mark.chaos
def test_power_losses_of_one_node_at_a_time_lose_nothing_that_two_replicas_had() -> None:
    verdict = power_loss.run("minority", failures=2, seed=1)
    assert verdict.problems == []
    assert verdict.acknowledged > 500


@pytest.mark.chaos
def test_a_power_loss_of_all_nodes_at_once_loses_nothing_that_was_flushed_before_it_was_acknowledged() -> None:
    verdict = power_loss.run("all", failures=2, seed=1)
    assert verdict.problems == []
    assert verdict.acknowledged > 500
