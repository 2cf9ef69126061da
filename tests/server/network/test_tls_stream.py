"""TLS on a connection: handshakes in turns, back-pressure, and the message about a peer that does not speak TLS, over real
sockets.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import ssl
import sys
import tempfile

import psutil
import pytest

from ottla.local.certificates import Authority, Issued
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.server.network import handshakes
from ottla.server.network import listener as listeners
from ottla.server.network.client import Channel
from ottla.server.network.context import RequestContext
from ottla.server.network.handshakes import HANDSHAKES_MAX, Handshakes
from ottla.server.network.listener import HANDSHAKE_MS_MAX
from ottla.server.network.peer_security import ClientTls, PeerSecurity
from ottla.server.network.route import Route
from ottla.server.network.tls_stream import CIPHERTEXT_HIGH_BYTES
from ottla.server.network.wire import ChannelClosed
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.world import RealWorld, World
from tests.server.tiny_node import ANSWER_TIMEOUT_S, FETCH, PRODUCE, heartbeat, request, tiny_node, until

AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["localhost", "127.0.0.1"])
FETCH_RECORDS = memoryview(bytes(range(256)) * 40_000)


#: The event loops that each test runs on.
LOOPS = ("asyncio", "uvloop")


def load(context: ssl.SSLContext, issued: Issued) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(issued.chain_pem + issued.key_pem)
        file.flush()
        context.load_cert_chain(file.name)


class Tls:
    """The server's side, with a certificate of the test's authority."""

    def __init__(self, world: World, issued: Issued = NODE) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(self.context, issued)
        self.handshakes = Handshakes(world.workers, world.spawn)

    def principal(self, certificate: bytes | None) -> Principal:
        return ANONYMOUS


class NamedTls(Tls):
    """Keeps the name that a client requests, as a node does."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.context.sslobject_class = handshakes.ServerSide
        self.context.sni_callback = handshakes.keep_asked_name


def client_context(authority: Authority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    return context


def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    partition = PartitionData(partition_index=0, records=FETCH_RECORDS)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


async def test_pipelined_requests_over_tls_are_answered_in_order() -> None:
    async with tiny_node(tls=Tls) as node:
        client = await node.client(client_context())
        client.send(b"".join(heartbeat(f"m{number}", number) for number in range(2000)))
        assert await client.correlation_ids(2000) == list(range(2000))


async def test_requests_larger_than_any_buffer_arrive_as_they_were_sent() -> None:
    seen: list[bytes] = []

    def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        seen.append(bytes(request.topic_data[0].partition_data[0].records or b""))
        return ProduceResponse()

    async with tiny_node(Route(PRODUCE, produce), tls=Tls) as node:
        client = await node.client(client_context())
        sent = []
        for number, size in enumerate((10, 16_384, 70_000, 300_000, 3_000_000, 1)):
            records = os.urandom(size)
            sent.append(records)
            topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
            client.send(request(PRODUCE, 9, ProduceRequest(acks=1, topic_data=[topic]), number))
        assert await client.correlation_ids(6) == list(range(6))
        assert seen == sent


async def test_a_client_that_does_not_read_holds_no_more_than_the_limit_as_ciphertext() -> None:
    async with tiny_node(Route(FETCH, fetch), tls=Tls) as node:
        client = await node.client(client_context(), limit=2**16)
        for number in range(5):
            client.send(request(FETCH, 11, FetchRequest(), number))
        await until(lambda: node.listener.connections)
        (connection,) = node.listener.connections
        await until(lambda: connection.transport.get_write_buffer_size() > CIPHERTEXT_HIGH_BYTES)
        await asyncio.sleep(0.05)
        in_kernel_and_loop = connection.transport._raw.get_write_buffer_size()
        assert in_kernel_and_loop <= CIPHERTEXT_HIGH_BYTES + 2 * 256 * 1024
        for number in range(5):
            frame = await client.frame()
            assert int.from_bytes(frame[:4], "big") == number
            assert bytes(FETCH_RECORDS) in frame


async def test_what_was_written_before_a_close_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FETCH_RECORDS", FETCH_RECORDS[:900_000])
    async with tiny_node(Route(FETCH, fetch), tls=Tls) as node:
        client = await node.client(client_context())
        client.send(request(FETCH, 11, FetchRequest(), 1))
        await until(lambda: node.listener.bytes_out)
        for connection in list(node.listener.connections):
            connection.close("the test ends")
        assert bytes(FETCH_RECORDS) in await client.frame()
        assert await client.is_closed_by_peer()


@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (heartbeat(), "the client speaks plaintext, but this listener wants SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "such as an HTTP request: this listener wants SSL"),
        (b"\x16\x03\x01\x00\x05hello", "SSL handshake failed:"),
    ],
)
async def test_a_client_that_does_not_speak_tls_is_closed_with_one_line(
    first_bytes: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiny_node(tls=Tls) as node:
        client = await node.client()
        client.send(first_bytes)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await client.reader.read()
        await until(lambda: not node.listener.connections)
        lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(lines) == 1 and said in lines[0].getMessage()
        assert node.listener.refused == 1
        other = await node.client(client_context())
        other.send(heartbeat("m", 7))
        assert await other.correlation_ids(1) == [7]


async def test_a_client_that_asks_for_a_name_that_is_not_ascii_is_closed_with_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPython writes a traceback to stderr for each of them."""
    tracebacks: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", tracebacks.append)
    sent = ssl.MemoryBIO()
    end = client_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    async with tiny_node(tls=NamedTls) as node:
        client = await node.client()
        client.send(sent.read().replace(b"localhost", b"loca\xffhost"))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await client.reader.read()
        await until(lambda: not node.listener.connections)
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 1 and "the host name that the client asks for is not ASCII" in lines[0]
    assert tracebacks == []


async def test_a_health_check_that_only_connects_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with tiny_node(tls=Tls) as node:
        client = await node.client()
        await until(lambda: node.listener.connections)
        client.close()
        await until(lambda: not node.listener.connections)
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_handshake_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HANDSHAKE_MS_MAX < 60_000
    monkeypatch.setattr(listeners, "HANDSHAKE_MS_MAX", 50)
    async with tiny_node(tls=Tls) as node:
        client = await node.client()
        client.send(b"\x16\x03\x01\x02\x00\x01")
        assert await client.is_closed_by_peer()
        assert node.listener.refused == 1


def truncated_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    sslobj = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        sslobj.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("share", [0.5, 1.0])
async def test_a_thousand_half_handshakes_cost_little_and_others_still_get_in(share: float) -> None:
    hello = truncated_hello()
    hello = hello[: int(len(hello) * share)]
    async with tiny_node(tls=Tls) as node:
        first = await node.client(client_context())
        gc.collect()
        before = psutil.Process().memory_info().rss
        sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(1000)]
        for each in sockets:
            each.sendall(hello)
        await until(lambda: len(node.listener.connections) == 1001)
        other = await node.client(client_context())
        other.send(heartbeat("m", 7))
        assert await other.correlation_ids(1) == [7]
        grown = psutil.Process().memory_info().rss - before
        print(f"{grown / 1000:.0f} bytes per half handshake")
        assert grown < (15_000 if share < 1 else 60_000) * 1000
        for each in sockets:
            each.close()
        first.close()


async def test_of_too_many_unfinished_handshakes_the_oldest_are_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert HANDSHAKES_MAX * 46_000 < 100_000_000
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 3)
    hello = truncated_hello()
    async with tiny_node(tls=Tls) as node:
        stalled = []
        for number in range(5):
            client = await node.client()
            client.send(hello)
            assert await client.reader.read(1) == b"\x16"  # the node's first flight
            stalled.append(client)
            await until(lambda number=number: node.listener.refused == max(0, number - 2))
        async with asyncio.timeout(10):
            for client in stalled[:2]:
                await client.reader.read()  # to the end, because the node has closed the connection
        other = await node.client(client_context())
        other.send(heartbeat("m", 7))
        assert await other.correlation_ids(1) == [7]
        assert "it was not complete, and too many others had begun" in caplog.text


class TestChannel:
    """The client's side, as nodes and commands use it."""

    async def ask(self, port: int, host: str, context: ssl.SSLContext) -> None:
        real = RealWorld(asyncio.get_running_loop())
        channel = Channel(real.world, host, port, "tester", PeerSecurity(ClientTls(context)))
        try:
            await channel.request(HeartbeatRequest(group_id="g", member_id="m"))
        finally:
            channel.close()
            await real.close()

    async def test_a_channel_over_tls(self) -> None:
        async with tiny_node(tls=Tls) as node:
            await self.ask(node.port, "127.0.0.1", client_context())
            assert node.heartbeats.members == ["m"]

    async def test_a_node_of_another_authority_is_not_trusted(self) -> None:
        async with tiny_node(tls=Tls) as node:
            with pytest.raises(
                ChannelClosed, match="certificate is not accepted: self-signed certificate in certificate chain"
            ):
                await self.ask(node.port, "127.0.0.1", client_context(Authority.create("other")))
            await until(lambda: not node.listener.connections)

    async def test_a_certificate_for_another_host_is_not_trusted(self) -> None:
        def elsewhere(world: World) -> Tls:
            return Tls(world, AUTHORITY.issue("node", ["elsewhere.example"]))

        async with tiny_node(tls=elsewhere) as node:
            with pytest.raises(ChannelClosed, match=r"not accepted: IP address mismatch.*127\.0\.0\.1"):
                await self.ask(node.port, "127.0.0.1", client_context())

    async def test_an_expired_certificate_is_not_trusted(self) -> None:
        def expired(world: World) -> Tls:
            return Tls(world, AUTHORITY.issue("node", ["127.0.0.1"], days=-1))

        async with tiny_node(tls=expired) as node:
            with pytest.raises(ChannelClosed, match="not accepted: certificate has expired"):
                await self.ask(node.port, "127.0.0.1", client_context())

    async def test_a_tls_channel_to_a_plaintext_listener_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        async with tiny_node() as node:
            with pytest.raises(ChannelClosed):
                await self.ask(node.port, "127.0.0.1", client_context())
            assert "the client wants SSL, but this listener is plaintext" in caplog.text
