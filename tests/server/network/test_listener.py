"""Listeners: limits on connections, and the address that they advertise to clients."""

from __future__ import annotations

import pytest

from ottla.server.network.limits import ConnectionLimits
from tests.server.tiny_node import heartbeat, tiny_node, until


async def test_connections_above_the_limit_of_one_address_are_rejected() -> None:
    async with tiny_node(limits=ConnectionLimits(connections_per_ip_max=2)) as node:
        first, second = await node.client(), await node.client()
        await until(lambda: len(node.listener.connections) == 2)
        third = await node.client()
        assert await third.is_closed_by_peer()
        first.close()
        await until(lambda: len(node.listener.connections) == 1)
        fourth = await node.client()
        for client in (second, fourth):
            client.send(heartbeat("m", 3))
            assert await client.correlation_ids(1) == [3]
        assert node.listener.rejected == 1


async def test_an_override_gives_one_address_another_limit() -> None:
    limits = ConnectionLimits(connections_per_ip_max=0, connections_per_ip_overrides={"127.0.0.1": 1})
    async with tiny_node(limits=limits) as node:
        client = await node.client()
        client.send(heartbeat("m", 1))
        assert await client.correlation_ids(1) == [1]
        assert await (await node.client()).is_closed_by_peer()


async def test_the_total_is_limited_too_and_may_change_while_running() -> None:
    async with tiny_node(limits=ConnectionLimits(connections_max=1)) as node:
        first = await node.client()
        await until(lambda: node.listener.connections)
        assert await (await node.client()).is_closed_by_peer()
        node.limits.connections_max = 2
        second = await node.client()
        second.send(heartbeat("m", 1))
        assert await second.correlation_ids(1) == [1]
        first.close()
        await until(lambda: node.limits.open_total == 1)


async def test_a_port_in_use_is_an_error_and_not_shared() -> None:
    async with tiny_node() as node:
        with pytest.raises(OSError):
            async with tiny_node(port=node.port):
                pass


async def test_a_connection_is_known_by_both_its_ends() -> None:
    async with tiny_node() as node:
        client = await node.client()
        await until(lambda: node.listener.connections)
        connection = next(iter(node.listener.connections))
        port = client.writer.get_extra_info("sockname")[1]
        assert connection.id == f"127.0.0.1:{node.port}-127.0.0.1:{port}-1"
        gone: list[str] = []
        connection.on_close(lambda: gone.append("gone"))
        client.close()
        await until(lambda: gone)
