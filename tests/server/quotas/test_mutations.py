"""Partitions are charged topic by topic: they are rejected if the client's version knows the error, and otherwise the client is
throttled.
"""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.quotas.clients import ClientQuotas
from tests.manual_clock import ManualClock
from tests.server.quotas.test_clients import made


def quotas_of_one_a_second() -> tuple[ClientQuotas, ManualClock]:
    return made({(("user", "ann"),): {"controller_mutation_rate": 1.0}})


def test_eleven_seconds_worth_passes_at_once_and_the_topic_after_the_one_that_owes_is_refused() -> None:
    quotas, clock = quotas_of_one_a_second()
    quota = quotas.mutations("ann", "c", strict=True)
    quota.charge(5)
    quota.charge(10)
    assert quota.wait_ms() == 0
    with pytest.raises(KafkaError) as refused:
        quota.charge(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.wait_ms() == 4_000
    clock.now_ms = 1_500
    assert quota.wait_ms() == 2_500, "a request that waited for its commit says what is left"
    clock.now_ms = 4_000
    quotas.mutations("ann", "c", strict=True).charge(1)


def test_an_old_client_is_served_and_held_back_afterwards() -> None:
    quotas, _ = quotas_of_one_a_second()
    quota = quotas.mutations("ann", "c", strict=False)
    for _ in range(3):
        quota.charge(10)
    assert quota.wait_ms() == 19_000


def test_without_a_quota_nothing_is_charged() -> None:
    quotas, _ = quotas_of_one_a_second()
    quota = quotas.mutations("bob", "c", strict=True)
    quota.charge(1_000_000)
    assert quota.wait_ms() == 0
