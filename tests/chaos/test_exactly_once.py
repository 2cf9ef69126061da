"""Exactly once, through nodes that are killed in the middle of transactions (invariants 30 to 33 and 35); long in `make chaos`."""

import pytest

from tests.chaos import exactly_once
from tests.chaos.message_copiers import JavaMessageCopier
from tests.needs import needs_apache_kafka


@pytest.mark.timeout(300)
def test_a_librdkafka_application_copies_every_record_once_though_its_only_node_is_killed_four_times() -> None:
    verdict = exactly_once.run(kills=4, count=6_000, seed=1)
    assert verdict.problems == []
    assert verdict.kills.total() == 4, f"the load was too small: {verdict}"


@needs_apache_kafka
@pytest.mark.timeout(300)
def test_a_java_application_copies_every_record_once_though_coordinators_and_leaders_are_killed() -> None:
    verdict = exactly_once.run(kills=3, count=16_000, seed=1, nodes=3, copier=JavaMessageCopier)
    assert verdict.problems == []
    assert verdict.kills.total() == 3, f"the load was too small: {verdict}"
