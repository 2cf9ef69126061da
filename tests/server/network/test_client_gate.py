"""The gate of a broker's listeners: what clients see while it is closed, and afterwards."""

from __future__ import annotations

import logging

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.server.network.client import Channel
from ottla.server.network.listener import CLOSED_PER_TURN, ClientGate
from ottla.server.network.wire import ChannelClosed
from tests.server.tiny_node import heartbeat, tiny_node, until


async def test_a_closed_gate_disconnects_all_and_lets_newcomers_introduce_themselves_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with tiny_node() as node:
        clients = [await node.client() for _ in range(2 * CLOSED_PER_TURN + 1)]
        clients[0].send(heartbeat("m", 1))
        assert await clients[0].correlation_ids(1) == [1]
        await until(lambda: len(node.listener.connections) == len(clients))
        gate = ClientGate(node.world, node.dispatcher, [node.listener])
        with caplog.at_level(logging.INFO):
            gate.close()
            assert all([await client.is_closed_by_peer() for client in clients])
            channel = Channel(node.world, "127.0.0.1", node.port, "newcomer")
            await channel.connect()
            await channel.request(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
            with pytest.raises(ChannelClosed):
                await channel.request(HeartbeatRequest(group_id="g", member_id="m"))
        assert not caplog.records, "clients try again and again, and would fill the log"
        gate.open()
        await channel.request(HeartbeatRequest(group_id="g", member_id="m"))
        channel.close()
