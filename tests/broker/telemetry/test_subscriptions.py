"""The metrics that a subscription asks a client for (KIP-714)."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.instances import INTERVAL_MS, parse_subscription, wanted

ID = bytes(15) + b"\7"
CLIENT = {"client_id": "shop-7", "client_software_name": "librdkafka"}
SUBSCRIPTIONS = [
    parse_subscription({"metrics": "org.b,org.a", "interval.ms": "5000", "match": "client_id=shop-.*"}),
    parse_subscription({"metrics": "org.c,org.a", "interval.ms": "900", "match": "client_software_name=librdkafka"}),
    parse_subscription({"metrics": "org.d", "interval.ms": "100", "match": "client_id=shop,client_software_name=.*"}),
]


def test_metrics_of_all_matching_subscriptions_are_wanted_at_the_shortest_interval() -> None:
    assert wanted(SUBSCRIPTIONS, ID, CLIENT)[1:] == (("org.a", "org.b", "org.c"), 900)


def test_the_order_of_subscriptions_does_not_change_the_id_so_that_a_client_may_change_brokers() -> None:
    assert wanted(SUBSCRIPTIONS, ID, CLIENT) == wanted(SUBSCRIPTIONS[::-1], ID, CLIENT)
    assert wanted(SUBSCRIPTIONS, bytes(16), CLIENT).subscription_id != wanted(SUBSCRIPTIONS, ID, CLIENT).subscription_id


def test_the_id_is_kafkas_for_one_metric() -> None:
    """The id is the CRC32C of "[*]300000", XOR Java's hash of the instance id."""
    found = wanted([parse_subscription({"metrics": "*,org.a"})], bytes(15) + b"\5", CLIENT)
    assert found == (0x3C550F23 ^ 5, ("*",), INTERVAL_MS)


def test_a_client_that_no_subscription_matches_asks_again_after_five_minutes() -> None:
    found = wanted(SUBSCRIPTIONS, ID, {"client_id": "other"})
    assert found[1:] == ((), 300_000)
    assert found.subscription_id != 0


@pytest.mark.parametrize(
    ("configs", "interval_ms"), [({"interval.ms": "3600000"}, 300_000), ({"metrics": ""}, 300_000)]
)
def test_no_subscription_makes_the_interval_longer(configs: dict[str, str], interval_ms: int) -> None:
    assert wanted([parse_subscription(configs)], ID, CLIENT)[1:] == ((), interval_ms)


def test_a_pattern_of_catastrophic_shape_takes_linear_time() -> None:
    """Python's `re` would take 2^4000 steps."""
    subscription = parse_subscription({"metrics": "org.a", "match": "client_id=(a+)+$"})
    assert not subscription.matches({"client_id": "a" * 4_000 + "b"})
    assert subscription.matches({"client_id": "a" * 4_000})
