"""A channel logs in before its first request, and again before its session ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.server.clock import Clock
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.route import Route
from ottla.server.network.wire import ChannelClosed
from ottla.server.principal import Principal
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient
from ottla.server.sasl.login import LoginRules
from ottla.server.sasl.mechanisms import PlainExchange
from ottla.server.sasl.peer_login import PeerLogin
from ottla.server.world import RealWorld
from tests.manual_clock import ManualClock
from tests.server.tiny_node import TinyNode, tiny_node


@asynccontextmanager
async def channel_to_node(
    password: str, mechanism: str = "PLAIN", session_ms: int = 0, clock: Clock | None = None
) -> AsyncIterator[tuple[TinyNode, Channel]]:
    rules = LoginRules({"PLAIN": partial(PlainExchange, {"node": "secret"})}, 524_288, 0, {"PLAIN": session_ms})
    routes = (Route(17, sasl_handshake), Route(36, sasl_authenticate))
    real = RealWorld(asyncio.get_running_loop())
    world = replace(real.world, clock=clock or real.world.clock)

    async def exchange(host: str) -> ClientExchange:
        return PlainClient("node", password)

    async with tiny_node(*routes, login_rules=rules) as node:
        login = PeerLogin(mechanism, exchange, real.workers, world.clock)
        channel = Channel(world, "127.0.0.1", node.port, "peer", PeerSecurity(login=login))
        yield node, channel
        channel.close()
    await real.close()


async def test_a_channel_logs_in_before_its_first_request() -> None:
    async with channel_to_node("secret") as (node, channel):
        assert (await channel.request(HeartbeatRequest("g", 0, "m"))).error_code == 0
        [connection] = node.listener.connections
        assert connection.principal == Principal("User", "node")


@pytest.mark.parametrize(
    ("password", "mechanism", "said"),
    [
        ("planted", "PLAIN", "Authentication failed: Invalid username or password"),
        ("planted", "SCRAM-SHA-256", "UNSUPPORTED_SASL_MECHANISM, it enables PLAIN"),
    ],
)
async def test_a_login_that_fails_is_logged_once_and_raised_each_time(
    caplog: pytest.LogCaptureFixture, password: str, mechanism: str, said: str
) -> None:
    async with channel_to_node(password, mechanism) as (node, channel):
        for _ in range(3):
            with pytest.raises(ChannelClosed, match=said):
                await channel.request(HeartbeatRequest("g", 0, "m"))
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert lines == [f"Login at 127.0.0.1:{node.port} by {mechanism} failed: {said}"]
    assert "planted" not in caplog.text


async def test_a_channel_has_a_new_connection_before_its_session_ends() -> None:
    clock = ManualClock()  # it belongs only to the channel: the node's session does not end while the machine is busy
    async with channel_to_node("secret", session_ms=600_000, clock=clock) as (node, channel):
        await channel.request(HeartbeatRequest("g", 0, "m"))
        before = channel._protocol
        clock.advance_to(500_000)
        assert channel.is_open
        clock.advance_to(550_000)
        assert not channel.is_open
        await channel.request(HeartbeatRequest("g", 0, "m"))
        assert before is not None and not before.closed
        clock.advance_to(600_000)
        assert before.closed
        await channel.request(HeartbeatRequest("g", 0, "m"))
        assert node.listener.logins is not None and node.listener.logins.counts.expired == 0
