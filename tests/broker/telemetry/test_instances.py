"""A client's telemetry request is in time or not (KIP-714), with the cases of Kafka's ClientMetricsManagerTest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.broker.telemetry import instances as module
from ottla.broker.telemetry.instances import ClientInstance, ClientInstances, parse_subscription
from ottla.protocol.errors import ErrorCode, KafkaError

ID = b"i" * 16
INTERVAL_MS = 1_000


@pytest.fixture
def clients() -> ClientInstances:
    found = ClientInstances()
    found.set_subscription("all", parse_subscription({"metrics": "*", "interval.ms": str(INTERVAL_MS)}))
    return found


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code == code


def get(clients: ClientInstances, now_ms: int) -> ClientInstance:
    instance = clients.seen(ID, {}, now_ms)
    clients.check_get(instance, now_ms)
    return instance


def push(clients: ClientInstances, now_ms: int, *, wrong: int = 0, last: bool = False, codec: bool = True) -> None:
    instance = clients.seen(ID, {}, now_ms)
    clients.check_push(instance, instance.wanted.subscription_id + wrong, last, codec, now_ms)


def test_the_first_push_may_come_at_once_and_the_next_one_after_the_interval(clients: ClientInstances) -> None:
    get(clients, 0)
    push(clients, 1)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        push(clients, INTERVAL_MS)
    push(clients, 1 + INTERVAL_MS)
    assert clients.throttled == 1


def test_a_push_that_no_subscription_asks_for_is_refused() -> None:
    clients = ClientInstances()
    get(clients, 0)
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        push(clients, 1)


def test_instances_that_came_once_are_forgotten_by_those_that_come_later(clients: ClientInstances) -> None:
    for number in range(100):
        clients.seen(number.to_bytes(16, "big"), {}, number)
    assert len(clients) == 100
    for number in range(100, 200):
        clients.seen(number.to_bytes(16, "big"), {}, 3_600_000 + number)
    assert len(clients) == 100


def test_subscriptions_are_not_repeated_before_the_interval(clients: ClientInstances) -> None:
    get(clients, 0)
    push(clients, 10)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        get(clients, 10 + INTERVAL_MS - 1)
    get(clients, 10 + INTERVAL_MS)


def test_changed_subscriptions_are_given_at_once_and_the_old_id_is_refused(clients: ClientInstances) -> None:
    old = get(clients, 0)
    clients.set_subscription("all", parse_subscription({"metrics": "org.a", "interval.ms": str(INTERVAL_MS)}))
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        clients.check_push(clients.seen(ID, {}, 5), old.wanted.subscription_id, False, True, 5)
    assert get(clients, 6).wanted.metrics == ("org.a",)
    push(clients, 7)
    clients.set_subscription("all", None)
    assert get(clients, 8).wanted.metrics == ()


def test_a_codec_is_corrected_at_once(clients: ClientInstances) -> None:
    get(clients, 0)
    with refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        push(clients, 1, codec=False)
    get(clients, 2)
    push(clients, 3)


def test_the_last_push_of_a_client_may_be_early_and_nothing_follows_it(clients: ClientInstances) -> None:
    get(clients, 0)
    push(clients, 1)
    push(clients, 2, last=True)
    with refused(ErrorCode.INVALID_REQUEST):
        push(clients, 5_000)


def test_an_instance_of_another_broker_may_push_here(clients: ClientInstances) -> None:
    push(clients, 0)
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        push(clients, 2 * INTERVAL_MS, wrong=1)
    assert clients.unknown_subscriptions == 1


def test_an_instance_is_forgotten_after_a_minute_or_when_there_are_too_many(
    clients: ClientInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(clients, 0, last=True)
    push(clients, 60_001)
    monkeypatch.setattr(module, "INSTANCES_MAX", 2)
    clients.seen(b"a" * 16, {}, 60_002)
    clients.seen(b"b" * 16, {}, 60_003)
    assert len(clients) == 2
    push(clients, 60_004)
