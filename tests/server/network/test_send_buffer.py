"""The send buffer of an accepted socket: by configuration, or by the distance of the peer."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.server.network.limits import ConnectionLimits
from ottla.server.transport import NEAR_RTT_US, NEAR_SEND_BUFFER_BYTES, SocketOptions, send_buffer_bytes
from tests.server.tiny_node import ANSWER_TIMEOUT_S, TinyNode, tiny_node, until


@pytest.mark.parametrize(
    ("configured", "round_trip_us", "expected"),
    [
        (None, NEAR_RTT_US, NEAR_SEND_BUFFER_BYTES),
        (None, NEAR_RTT_US + 1, -1),
        (None, 0, -1),
        (-1, 10, -1),
        (102_400, 10, 102_400),
        (102_400, 50_000, 102_400),
    ],
)
def test_the_kernel_adapts_the_buffer_unless_the_peer_is_near_or_a_size_is_configured(
    configured: int | None, round_trip_us: int, expected: int
) -> None:
    assert send_buffer_bytes(configured, round_trip_us) == expected


async def send_buffer_of(node: TinyNode) -> int:
    client = await node.client()
    await until(lambda: node.listener.connections)
    accepted = next(iter(node.listener.connections)).transport.get_extra_info("socket")
    size: int = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    client.close()
    await until(lambda: not node.listener.connections)
    return size


def granted(size: int) -> int:
    """Return the size that this kernel makes of a requested one: twice as much, and at most twice net.core.wmem_max."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        return other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


async def test_a_peer_on_the_same_machine_is_near() -> None:
    async with tiny_node() as node, asyncio.timeout(ANSWER_TIMEOUT_S):
        while await send_buffer_of(node) != granted(NEAR_SEND_BUFFER_BYTES):
            pass  # its round trip was longer than 100 us: the machine is busy


async def test_a_configured_size_is_taken_for_a_near_peer_too() -> None:
    async with tiny_node(limits=ConnectionLimits(socket_options=SocketOptions(send_buffer_bytes=30_000))) as node:
        assert await send_buffer_of(node) == granted(30_000)
