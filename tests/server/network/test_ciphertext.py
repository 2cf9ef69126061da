"""TLS records without data take time of their own connection, and not of the turns of others, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

from ottla.server.network import tls_stream
from ottla.server.network.handshakes import CIPHERTEXT_BYTES
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.tls_buffers import DATALESS_BYTES_MAX
from ottla.server.network.tls_stream import Stop
from ottla.server.transport import SocketOptions
from tests.server.network.key_updates import connect
from tests.server.network.test_tls_stream import Tls, client_context
from tests.server.tiny_node import heartbeat, tiny_node, until

#: The CPU time between two turns of the loop: 20 ms, one more chunk of records, and some time for a slow machine. It was 6 s.
TURN_S = 0.5


#: The event loops that each test runs on.
LOOPS = ("uvloop",)


@pytest.fixture(autouse=True)
def no_collection_in_a_turn() -> Iterator[None]:
    """Stop the garbage collector, whose time grows with the objects of other tests."""
    gc.disable()
    yield
    gc.enable()


class Turns:
    """The longest turn of the loop, in its thread's CPU time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_s = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._began_s)
        self._began_s = now_s
        self._loop.call_soon(self._next)


async def test_a_flood_of_key_updates_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with tiny_node(tls=Tls) as node:
        client = await connect(node.port, client_context())
        client.writer.write(client.finished + client.data(heartbeat()))
        await until(lambda: node.heartbeats.members)
        flood = client.key_updates(12_000)
        turns = Turns()
        client.writer.write(flood)
        assert await client.is_closed_by_peer()
        assert turns.longest_s < TURN_S
        await until(lambda: not node.listener.connections)
        assert "bytes of records without data" in caplog.text


async def test_key_updates_right_behind_the_handshake_end_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with tiny_node(tls=Tls) as node:
        client = await connect(node.port, client_context())
        flood = client.finished + client.key_updates(9_000)
        turns = Turns()
        client.writer.write(flood)
        assert await client.is_closed_by_peer()
        assert turns.longest_s < TURN_S
        assert "bytes of records without data" in caplog.text


async def test_key_updates_between_data_are_served_in_turns_and_others_meanwhile() -> None:
    """Each chunk has a byte of a request, so that no limit is reached."""
    async with tiny_node(tls=Tls) as node:
        client, other = await connect(node.port, client_context()), await node.client(client_context())
        frame = heartbeat("m", 1)
        parts = [client.key_updates(400) + client.data(frame[at : at + 1]) for at in range(len(frame))]
        turns = Turns()
        client.writer.write(client.finished + b"".join(parts))
        while "m" not in node.heartbeats.members:
            other.send(heartbeat("other", 7))
            assert await other.correlation_ids(1) == [7]
        assert turns.longest_s < TURN_S
        client.writer.close()


async def test_a_peer_that_reads_no_answers_to_its_key_updates_is_read_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_stream, "CIPHERTEXT_HIGH_BYTES", 16 * 1024)
    monkeypatch.setattr(tls_stream, "CIPHERTEXT_LOW_BYTES", 8 * 1024)
    limits = ConnectionLimits(socket_options=SocketOptions(send_buffer_bytes=4 * 1024))
    async with tiny_node(tls=Tls, limits=limits) as node:
        client = await connect(node.port, client_context())
        client.transport.pause_reading()
        sent = 60
        parts = [client.key_updates(400) + client.data(heartbeat()) for _ in range(sent)]
        client.writer.write(client.finished + b"".join(parts))
        await until(lambda: node.listener.connections)
        [connection] = node.listener.connections
        await until(lambda: connection.transport._stopped & Stop.ANSWERS or len(node.heartbeats.members) == sent)
        # The answers to one read of the socket are written together, and may be no larger: each answer is as large as its key
        # update.
        assert connection.transport.get_write_buffer_size() < tls_stream.CIPHERTEXT_HIGH_BYTES + CIPHERTEXT_BYTES
        assert len(node.heartbeats.members) < sent
        client.transport.resume_reading()
        reading = asyncio.create_task(client.is_closed_by_peer())
        await until(lambda: len(node.heartbeats.members) == sent)
        client.writer.close()
        await reading


async def test_a_few_key_updates_are_no_reason_to_close() -> None:
    async with tiny_node(tls=Tls) as node:
        client = await connect(node.port, client_context())
        client.writer.write(client.finished)
        count = DATALESS_BYTES_MAX // 27 // 2
        for number in range(10):
            client.writer.write(client.key_updates(count) + client.data(heartbeat("m", number)))
        await until(lambda: len(node.heartbeats.members) == 10)
        client.writer.close()
