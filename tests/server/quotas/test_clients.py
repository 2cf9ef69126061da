"""The quotas that clients have used, and how long they wait. The test controls the time."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.server.quotas.clients import CLIENTS_BYTES_MAX, ClientQuotas
from ottla.server.quotas.rate import Windows
from tests.manual_clock import ManualClock

PRODUCE, HEARTBEAT = int(ApiKey.PRODUCE), int(ApiKey.HEARTBEAT)
ANN = (("user", "ann"),)
DEFAULT_CLIENT = (("client-id", None),)


def made(entities: Any = None) -> tuple[ClientQuotas, ManualClock]:
    clock = ManualClock()
    quotas = ClientQuotas(clock, Windows(), Windows())
    quotas.update(entities or {})
    return quotas, clock


def produce(quotas: ClientQuotas, user: str, size: int, client_id: str = "c", *, is_asked: bool = True) -> int:
    meters = quotas.of(user, client_id)
    quotas.take(meters, PRODUCE, size, 0)
    return quotas.wait_ms(meters, PRODUCE, is_asked=is_asked)


def test_without_quotas_of_clients_nothing_is_active() -> None:
    quotas, _ = made({(("ip", None),): {"connection_creation_rate": 1.0}})
    assert not quotas.active
    assert quotas.connection_rate("10.0.0.1") == 1
    quotas.update({ANN: {"producer_byte_rate": 1.0}})
    assert quotas.active
    quotas.update({})
    assert not quotas.active


def test_a_producer_waits_for_what_is_above_one_second_of_its_quota() -> None:
    quotas, clock = made({ANN: {"producer_byte_rate": 1_000.0}})
    assert produce(quotas, "ann", 1_000) == 0
    assert produce(quotas, "ann", 500) == 500
    clock.now_ms = 500
    assert produce(quotas, "ann", 0) == 0
    assert produce(quotas, "bob", 1_000_000) == 0


def test_clients_of_one_user_share_its_quota_and_each_client_id_has_the_default_for_itself() -> None:
    quotas, _ = made({ANN: {"producer_byte_rate": 1_000.0}})
    produce(quotas, "ann", 2_000, "first")
    assert produce(quotas, "ann", 0, "second") == 1_000
    quotas, _ = made({DEFAULT_CLIENT: {"producer_byte_rate": 1_000.0}})
    produce(quotas, "ann", 2_000, "first")
    assert produce(quotas, "ann", 0, "second") == 0


def test_what_has_been_used_stays_used_when_quotas_change() -> None:
    quotas, _ = made({ANN: {"producer_byte_rate": 1_000.0}})
    produce(quotas, "ann", 3_000)
    quotas.update({ANN: {"producer_byte_rate": 2_000.0}})
    assert produce(quotas, "ann", 2_000) == 3_000
    quotas.update({})
    assert produce(quotas, "ann", 2_000) == 0


def test_a_consumer_gets_nothing_while_bytes_are_owed_and_these_are_not_counted() -> None:
    quotas, clock = made({ANN: {"consumer_byte_rate": 1_000.0}})
    assert quotas.fetched("ann", "c", 3_000) == 0
    assert [quotas.fetched("ann", "c", 3_000) for _ in range(5)] == [2_000] * 5
    assert quotas.fetched("ann", "c", 0) == 0, "an empty poll waits for nothing"
    clock.now_ms = 2_000
    assert quotas.fetched("ann", "c", 3_000) == 0
    assert quotas.fetch_bytes_max("ann", "c") == 1_000
    assert quotas.fetch_bytes_max("bob", "c") is None


def test_time_of_the_loop_is_counted_in_percent_and_waits_are_one_window_at_most() -> None:
    quotas, clock = made({ANN: {"request_percentage": 10.0}})
    meters = quotas.of("ann", "c")
    quotas.take(meters, HEARTBEAT, 0, 150_000_000)  # 15 % of a second, of which 10 ms may come at once
    assert quotas.wait_ms(meters, HEARTBEAT, is_asked=True) == 500
    assert quotas.fetched("ann", "c", 0) == 500
    quotas.take(meters, HEARTBEAT, 0, 5_000_000_000)
    assert quotas.wait_ms(meters, HEARTBEAT, is_asked=True) == 1_000
    assert quotas.wait_ms(meters, PRODUCE, is_asked=False) == 0, "acks=0 is not held back by it"
    clock.now_ms = 60_000
    assert quotas.wait_ms(meters, HEARTBEAT, is_asked=True) == 0


def test_time_that_the_response_takes_holds_back_the_next_request() -> None:
    quotas, _ = made({ANN: {"request_percentage": 10.0}})
    meters = quotas.of("ann", "c")
    quotas.take(meters, HEARTBEAT, 0, 100_000_000)
    assert quotas.wait_ms(meters, HEARTBEAT, is_asked=True) == 0
    quotas.spent(meters, 50_000_000)
    assert quotas.wait_ms(meters, HEARTBEAT, is_asked=True) == 500


def test_throttle_times_are_counted_for_the_quota_that_caused_them() -> None:
    quotas, _ = made({ANN: {"producer_byte_rate": 1_000.0, "request_percentage": 50.0}})
    produce(quotas, "ann", 2_000)
    counted = {key: (meter.throttles, meter.throttled_ms) for (key, _), meter in quotas.meters.items()}
    assert counted == {"producer_byte_rate": (1, 1_000), "request_percentage": (0, 0)}


def test_meters_of_idle_clients_are_forgotten_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr("ottla.server.quotas.clients.METERS_MAX", 100)
    quotas, clock = made({DEFAULT_CLIENT: {"producer_byte_rate": 1_000.0}})
    produce(quotas, "ann", 100_000, "owing")
    for number in range(99):
        produce(quotas, "ann", 10, f"idle-{number}")
    clock.now_ms = 12_000
    produce(quotas, "ann", 10, "new")
    assert {share.client_id for _, share in quotas.meters} == {"owing", "new"}
    assert produce(quotas, "ann", 0, "owing") == 87_000


def test_clients_with_ids_of_32_kb_have_meters_and_cost_no_more_than_others() -> None:
    quotas, _ = made({DEFAULT_CLIENT: {"producer_byte_rate": 1_000.0}})
    long = "x" * 32_000
    for number in range(20):
        assert produce(quotas, "ann", 100, f"{long}{number}") == 0
    assert produce(quotas, "ann", 100_000, f"{long}3") > 0 and produce(quotas, "ann", 100, f"{long}4") == 0
    assert max(len(share.client_id) for _, share in quotas.meters) < 100
    assert quotas.clients.bytes == 0 < CLIENTS_BYTES_MAX


@pytest.mark.parametrize("consumers", [1, 20])
@pytest.mark.parametrize("late_ms", [0, 50, 400])
def test_over_thirty_seconds_consumers_get_their_quota_also_when_they_ask_late(consumers: int, late_ms: int) -> None:
    """Each consumer asks again as soon as it may, or up to `late_ms` later, as on a busy machine; there is always a MiB for it."""
    limit, rng = 2_000_000.0, random.Random(consumers + late_ms)
    quotas, clock = made({ANN: {"consumer_byte_rate": limit}})
    due, got = [(0, number) for number in range(consumers)], 0
    while due[0][0] < 30_000:
        clock.now_ms, number = heapq.heappop(due)
        size = min(quotas.fetch_bytes_max("ann", f"c{number}") or 0, 1_048_576)
        wait_ms = quotas.fetched("ann", f"c{number}", size)
        if not wait_ms:
            got += size
        heapq.heappush(due, (clock.now_ms + wait_ms + 1 + rng.randint(0, late_ms), number))
    assert 1.0 <= got / 30 / limit <= 1.07
