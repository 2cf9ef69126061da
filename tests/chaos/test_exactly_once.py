"""Exactly once, through nodes that are killed in the middle of transactions (invariants 30 to 33 and 35); long, and with Java, in `make chaos`."""

import pytest

from tests.chaos import exactly_once


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_librdkafka_application_copies_every_record_once_though_its_only_node_is_killed_four_times() -> None:
    verdict = exactly_once.run(kills=4, count=6_000, seed=1)
    assert verdict.problems == []
    assert verdict.kills.total() == 4, f"the load was too small: {verdict}"
