"""Steps of TLS handshakes on their thread: one at a time, beside the loop, also for connections that end meanwhile."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from ottla.server.network.handshakes import Handshakes
from ottla.server.workers import Workers
from ottla.server.world import World
from tests.server.network.test_tls_stream import NODE, Tls, client_context, truncated_hello
from tests.server.tiny_node import TinyNode, heartbeat, tiny_node, until


class Gate:
    """The workers of a machine on which a step takes as long as the test wants."""

    def __init__(self) -> None:
        self.workers: Workers
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.inside = self.most = 0

    def tls(self, world: World) -> Tls:
        self.workers = world.workers.apart("gated")
        made = Tls(world, NODE)
        made.handshakes = Handshakes(self, world.spawn)
        return made

    def apart(self, name: str) -> Gate:
        return self

    def process(self) -> Any:
        raise NotImplementedError

    async def run(self, function: Callable[..., Any], *args: object) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.is_open.wait()
        try:
            return await self.workers.run(function, *args)
        finally:
            self.inside -= 1


async def served(node: TinyNode) -> None:
    """A new client is accepted and gets a response."""
    client = await node.client(client_context())
    client.send(heartbeat("m", 7))
    assert await client.correlation_ids(1) == [7]
    client.close()


async def test_other_clients_are_served_while_a_step_is_taken() -> None:
    gate = Gate()
    async with tiny_node(tls=gate.tls) as node:
        early = await node.client(client_context())
        gate.is_open.clear()
        late = asyncio.ensure_future(node.client(client_context()))
        await until(lambda: gate.inside)
        for number in range(3):
            early.send(heartbeat("m", number))
            assert await early.correlation_ids(1) == [number]
        assert not late.done()
        gate.is_open.set()
        (await late).send(heartbeat("m", 9))
        assert await late.result().correlation_ids(1) == [9]


async def test_many_that_come_at_once_are_taken_one_at_a_time() -> None:
    gate = Gate()
    async with tiny_node(tls=gate.tls) as node:
        await asyncio.gather(*(served(node) for _ in range(30)))
    assert gate.most == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_each_version_is_let_in(version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    async with tiny_node(tls=Tls) as node:
        client = await node.client(context)
        client.send(heartbeat("m", 1))
        assert await client.correlation_ids(1) == [1]


@pytest.mark.parametrize("who", ["the client", "the node"])
async def test_a_connection_that_ends_while_its_step_is_taken_is_forgotten(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with tiny_node(tls=gate.tls) as node:
        gate.is_open.clear()
        client = await node.client()
        client.send(truncated_hello())
        await until(lambda: gate.inside)
        if who == "the client":
            client.writer.transport.abort()
            gate.is_open.set()
            await until(lambda: not node.listener.connections)
        else:
            node.listener.abort()
            await until(lambda: not node.listener.connections)
            gate.is_open.set()
        await served(node)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_peer_that_stalls_holds_no_other() -> None:
    gate = Gate()
    async with tiny_node(tls=gate.tls) as node:
        stalled = [await node.client() for _ in range(20)]
        for each in stalled:
            each.send(truncated_hello())
            assert await each.reader.read(1) == b"\x16"  # its step is done, and the client has to continue
        await served(node)
        assert gate.inside == 0
