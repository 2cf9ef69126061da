"""New connections from one address: as many as its quota are accepted, the others wait before they are closed."""

from __future__ import annotations

import pytest

from ottla.server.network.limits import ConnectionLimits
from ottla.server.quotas.rate import ConnectionQuotas
from tests.server.tiny_node import heartbeat, tiny_node, until


def test_an_address_has_its_quota_and_others_have_none() -> None:
    quotas = ConnectionQuotas({"10.0.0.1": 10.0}.get)
    admitted = sum(quotas.wait_ms("10.0.0.1", now_ms) == 0 for now_ms in range(0, 30_000, 10))
    assert 300 <= admitted <= 312
    assert quotas.wait_ms("10.0.0.2", 0) == 0
    assert len(quotas) == 1


def test_a_connection_waits_one_window_at_most_and_does_not_count() -> None:
    quotas = ConnectionQuotas(lambda host: 1.0)
    assert [quotas.wait_ms("a", 0) for _ in range(5)] == [0, 0, 1_000, 1_000, 1_000]
    assert quotas.wait_ms("a", 1_000) == 0


def test_addresses_that_are_idle_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.quotas.rate.ADDRESSES_MAX", 10)
    quotas = ConnectionQuotas(lambda host: 5.0)
    for number in range(10):
        quotas.wait_ms(f"10.0.0.{number}", 0)
    quotas.wait_ms("10.0.1.1", 1_000)
    assert len(quotas) == 1


class AtOnce(ConnectionQuotas):
    """All connections come in the same moment, however busy the machine is."""

    def wait_ms(self, host: str, now_ms: int) -> int:
        return super().wait_ms(host, 0)


async def test_a_client_that_comes_too_often_is_closed_and_those_before_it_are_served() -> None:
    limits = ConnectionLimits(quotas=AtOnce(lambda host: 2.0))
    async with tiny_node(limits=limits) as node:
        clients = [await node.client() for _ in range(4)]
        for client in clients[:3]:
            client.send(heartbeat())
            assert await client.correlation_ids(1) == [1]
        assert await clients[3].is_closed_by_peer()
        await until(lambda: node.listener.throttled == 1)
        assert limits.open_total == 3
