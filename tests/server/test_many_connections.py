"""The cost of connections: bytes kept for incomplete frames, turns of the loop to accept connections, and limits of their
number (invariant 51).
"""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from ottla.server.network.frames import GROWTH, POOLED_BYTES, FrameProtocol, ReceiveBuffer
from ottla.server.network.limits import HELD_MS_MAX, ConnectionLimits, ConnectionRate
from ottla.server.transport import ACCEPTS_PER_TURN
from tests.server.tiny_node import heartbeat, tiny_node, until

CLAIM = struct.pack(">i", 100 << 20)


class Frames(FrameProtocol):
    """Counts complete frames."""

    def __init__(self, inbox: ReceiveBuffer) -> None:
        super().__init__(inbox)
        self.frames: list[bytes] = []

    def serve(self, buf: bytearray | bytes, pos: int, end: int) -> int:
        while end - pos >= 4:
            stop = pos + 4 + int.from_bytes(buf[pos : pos + 4], "big")
            if stop > end:
                break
            self.frames.append(bytes(buf[pos + 4 : stop]))
            pos = stop
        return pos

    def receive(self, data: bytes, at_once: int) -> None:
        while data:
            room = self.get_buffer(-1)
            count = min(len(room), len(data), at_once)
            room[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]


@pytest.mark.parametrize(
    ("received", "at_once"),
    [
        (received, at_once)
        for received in (4, 100, 5_000, 65_000, 70_000, 500_000, 3_000_000)
        for at_once in (100, 1460, 1 << 20)
        if received // at_once <= 10_000  # more chunks would show nothing new
    ],
)
def test_a_connection_keeps_memory_for_what_has_come_and_not_for_what_was_announced(
    received: int, at_once: int
) -> None:
    frames = Frames(ReceiveBuffer())
    frames.receive((CLAIM + bytes(received))[:received], at_once)
    assert not frames.frames
    assert frames.received_bytes_kept <= GROWTH * received
    frames.drop_received()
    assert not frames.received_bytes_kept


@pytest.mark.parametrize("at_once", [100, 1460, 70_000, 1 << 20])
@pytest.mark.parametrize("size", [10, 65_000, 70_000, 300_000, 1_100_000])
def test_frames_are_whole_however_they_come(size: int, at_once: int) -> None:
    inbox = ReceiveBuffer(pooled=0)
    frames = Frames(inbox)
    body = bytes(i % 251 for i in range(size))
    pieces_max = 1000  # of a frame
    frames.receive((struct.pack(">i", size) + body) * 3 + struct.pack(">i", 1) + b"x", max(at_once, size // pieces_max))
    assert frames.frames == [body, body, body, b"x"]


async def test_hundreds_of_sockets_that_announce_much_and_send_little_cost_what_they_sent() -> None:
    async with tiny_node() as node:
        sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(300)]
        try:
            await until(lambda: len(node.listener.connections) == len(sockets))
            for each in sockets:
                each.sendall(CLAIM + bytes(96))
            await until(lambda: node.listener.bytes_in == 100 * len(sockets))
            kept = sum(connection.received_bytes_kept for connection in node.listener.connections)
            assert kept == 100 * len(sockets)
            beside = await node.client()
            beside.send(heartbeat("m", 7))
            assert await beside.correlation_ids(1) == [7]
            beside.close()
        finally:
            for each in sockets:
                each.close()
        await until(lambda: not node.listener.connections)


def test_the_pool_of_large_buffers_is_a_fixed_cost_whatever_sizes_clients_announce() -> None:
    inbox = ReceiveBuffer()
    many = [Frames(inbox) for _ in range(50)]
    for frames in many:
        frames.receive(struct.pack(">i", 900_000) + bytes(96), 100)
    assert sum(frames.received_bytes_kept for frames in many) <= 4 * POOLED_BYTES + 50 * 100


async def test_connections_that_wait_are_accepted_many_in_one_turn_of_the_loop() -> None:
    """With one connection a turn, beside requests that make turns of 6 ms, 160 a second were accepted."""
    async with tiny_node() as node:
        count = 3 * ACCEPTS_PER_TURN
        sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(count)]
        try:
            turns = 0
            while node.listener.accepted < count:
                await asyncio.sleep(0)
                turns += 1
                assert turns < count / 4
            await until(lambda: len(node.listener.connections) == count)
        finally:
            for each in sockets:
                each.close()


class TimedRate(ConnectionRate):
    """Records when each connection was accepted."""

    def __init__(self, per_second: int) -> None:
        super().__init__(per_second)
        self.times_ns: list[int] = []

    def opened(self, now_ns: int) -> int:
        self.times_ns.append(now_ns)
        return super().opened(now_ns)


async def test_new_connections_above_the_rate_wait_in_the_kernels_queue() -> None:
    rate = TimedRate(per_second=5)
    limits = ConnectionLimits(rate=rate)
    async with tiny_node(limits=limits) as node:
        sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(7)]
        try:
            await until(lambda: node.listener.accepted == 7)
            for count, now_ns in enumerate(rate.times_ns, 1):
                seconds = (now_ns - rate.times_ns[0]) / 1e9
                assert count <= 5 + 5 * seconds, "the burst of one second, and then one at a time"
        finally:
            for each in sockets:
                each.close()


async def test_a_listener_may_have_a_limit_of_its_own() -> None:
    limits = ConnectionLimits()
    limits.of("PLAINTEXT").update({"max.connections": 1})
    async with tiny_node(limits=limits) as node:
        first = await node.client()
        await until(lambda: node.listener.connections)
        assert await (await node.client()).is_closed_by_peer()
        first.close()


def test_a_rate_lets_a_seconds_worth_through_and_then_one_at_a_time() -> None:
    rate, now_ns = ConnectionRate(per_second=10), 1_000_000_000
    assert [rate.opened(now_ns) for _ in range(9)] == [0] * 9
    assert rate.opened(now_ns) == 101
    assert rate.opened(now_ns + 101_000_000) == 100
    assert rate.opened(now_ns + 10_000_000_000) == 0
    assert ConnectionRate().opened(0) == 0
    assert ConnectionRate(per_second=0).opened(0) == HELD_MS_MAX
