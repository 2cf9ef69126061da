"""Accidents together, the short form: a cut, a full disk and a power loss under all kinds of clients. The long form is in `make chaos`."""

import pytest

from tests.chaos import together
from tests.chaos.disks import needs_image_disks

pytestmark = [pytest.mark.timeout(600), needs_image_disks]


@pytest.mark.chaos
def test_producers_transactions_groups_and_compacted_keys_survive_cuts_full_disks_and_power_losses() -> None:
    verdict = together.run(
        4, seed=1, flush=True, names=("cut off", "full disk", "power loss of all", "power loss of one")
    )
    assert verdict.problems == []
    assert verdict.transactions > 5 and verdict.keyed_left < verdict.keyed
