"""The admin listener, as orchestrators, Prometheus and abusive clients use it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.server import admin
from ottla.server.admin import CONNECTIONS_MAX, REQUEST_BYTES_MAX, AdminServer, Check, read_address
from ottla.server.metrics import COUNTER, Family, Registry, Sample, counter, gauge
from ottla.server.world import RealWorld


class AdminHarness:
    """An admin server whose checks can be made to fail."""

    def __init__(self, server: AdminServer, registry: Registry) -> None:
        self.server = server
        self.registry = registry

    async def send(self, data: bytes) -> bytes:
        """Return everything that comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def get(self, path: str) -> tuple[int, str]:
        head, _, body = (await self.send(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())).partition(
            b"\r\n\r\n"
        )
        return int(head.split()[1]), body.decode()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


@asynccontextmanager
async def harness(*checks: Check) -> AsyncIterator[AdminHarness]:
    real = RealWorld(asyncio.get_running_loop())
    registry = Registry()
    server = AdminServer(real.world, "127.0.0.1", 0, registry, lambda: (), lambda: checks)
    await server.start()
    try:
        yield AdminHarness(server, registry)
    finally:
        await server.stop()
        await real.close()


async def test_a_node_that_is_not_ready_says_what_is_missing() -> None:
    async with harness(
        Check("quorum has a leader", True), Check("broker is unfenced", False, "it is in RECOVERY")
    ) as node:
        assert await node.get("/healthz") == (200, "")
        assert await node.get("/readyz") == (
            503,
            "[+] quorum has a leader\n[-] broker is unfenced: it is in RECOVERY\n",
        )


async def test_a_port_that_is_in_use_is_named_with_its_property() -> None:
    async with harness() as node:
        second = AdminServer(node.server.world, "127.0.0.1", node.server.port, node.registry, lambda: (), lambda: ())
        with pytest.raises(OSError, match=f"ottla.admin.listener 127.0.0.1:{node.server.port}: Address already in use"):
            await second.start()


async def test_metrics_of_all_sources_come_under_one_header_each() -> None:
    async with harness() as node:
        node.registry.add(lambda: [counter("kafka_in", "in", 3), counter("kafka_in", "in", 2, topic='a"b')])
        node.registry.add(lambda: [counter("kafka_in", "in", 1, topic="c")])
        many = [Sample({"n": str(n)}, n) for n in range(250)]
        node.registry.add(lambda: [Family("kafka_many", COUNTER, "many", many), gauge("kafka_g", "g", 1)])
        status, text = await node.get("/metrics")
    assert status == 200
    assert text.count("# TYPE kafka_in_total counter") == 1
    assert text.count("# TYPE kafka_many_total counter") == 1
    assert "kafka_in_total 3.0\n" in text
    assert 'kafka_in_total{topic="a\\"b"} 2.0' in text
    assert text.count("kafka_many_total{") == 250
    assert "kafka_g 1.0" in text
    assert "python_gc_collections_total" in text


async def test_a_source_that_fails_leaves_the_rest() -> None:
    def broken() -> list[Family]:
        raise ValueError("a bug")

    async with harness() as node:
        node.registry.add(broken)
        node.registry.add(lambda: [gauge("kafka_g", "g", 1)])
        status, text = await node.get("/metrics")
    assert (status, "kafka_g 1.0" in text) == (200, True)


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with harness() as node:
        answer = await node.send(
            b"GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
    assert [line for line in answer.split(b"\r\n") if b"HTTP/1.1 " in line] == [
        b"HTTP/1.1 200 OK",
        b"/healthz\n/readyz\n/metrics\nHTTP/1.1 200 OK",
        b"HTTP/1.1 404 Not Found",
    ]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example:9644\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03" + b"\r\n\r\n", b"400"),
        (b"GET /" + b"a" * REQUEST_BYTES_MAX + b" HTTP/1.1\r\n", b"431"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(sent: bytes, status: bytes) -> None:
    async with harness() as node:
        assert (await node.send(sent)).startswith(b"HTTP/1.1 " + status)


async def test_a_probe_is_answered_whatever_idle_sockets_do_and_the_one_that_waited_longest_goes() -> None:
    """The probe /healthz was reset because of 64 idle sockets of another pod, and Kubernetes restarted the node."""
    async with harness() as node:
        opened = []
        for number in range(CONNECTIONS_MAX):
            opened.append(await asyncio.open_connection("127.0.0.1", node.server.port))
            await until(lambda count=number + 1: len(node.server.connections) == count)
        first, second = opened[0], opened[1]
        first[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert await first[0].readuntil(b"/metrics\n")
        assert (await node.get("/healthz"))[0] == 200
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(second[0].readexactly(1), 30)
        first[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert await first[0].readuntil(b"/metrics\n")
        assert len(node.server.connections) <= CONNECTIONS_MAX
        for _, writer in opened:
            writer.close()
        await until(lambda: not node.server.connections)


async def test_a_client_that_does_not_read_gets_no_further_answers_and_is_closed_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "IDLE_TIMEOUT_MS", 1_000)
    async with harness() as node:
        served = 0

        def large() -> list[Family]:
            nonlocal served
            served += 1
            return [gauge(f"large_{served}", "x" * 1_000_000, 1)]

        node.registry.add(large)
        with socket.create_connection(("127.0.0.1", node.server.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 100)  # before it is accepted, so it is not idle then
            await until(lambda: served > 0)
            await until(lambda: not node.server.connections)
        assert served < 30


async def client_that_does_not_read(node: AdminHarness) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client whose first response, /metrics, is larger than the kernel's buffers for it."""
    node.registry.add(lambda: [gauge("large", "x" * 16_000_000, 1)])
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", node.server.port))
    reader, writer = await asyncio.open_connection(sock=client)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    await until(lambda: any(connection._unread for connection in node.server.connections))
    return reader, writer


async def test_a_client_that_reads_again_is_answered_what_it_asked_for_meanwhile() -> None:
    async with harness() as node:
        reader, writer = await client_that_does_not_read(node)
        (connection,) = node.server.connections
        writer.write(b"GET / HTTP/1.1\r\n\r\nGET /no HTTP/1.1\r\nConnection: close\r\n\r\n")
        await until(lambda: connection._buffer.endswith(b"close\r\n\r\n"))
        assert connection.is_idle, "nothing is answered as long as the client does not read"
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert [line.rpartition(b"HTTP/1.1 ")[2] for line in answer.split(b"\r\n") if b"HTTP/1.1 " in line] == [
        b"200 OK",
        b"200 OK",
        b"404 Not Found",
    ]


async def test_a_client_that_asks_for_more_than_a_buffer_of_requests_before_it_reads_is_closed() -> None:
    async with harness() as node:
        reader, writer = await client_that_does_not_read(node)
        many = b"GET / HTTP/1.1\r\n\r\n" * REQUEST_BYTES_MAX
        writer.write(many[: REQUEST_BYTES_MAX + 1])
        (connection,) = node.server.connections
        await until(lambda: len(connection._buffer) > REQUEST_BYTES_MAX)
        answer = await asyncio.wait_for(reader.read(), 30)
        await until(lambda: not node.server.connections)
        writer.close()
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.endswith(b"\n"), "the answer that was under way is whole"


async def test_a_connection_that_waits_for_its_next_request_ends_with_the_server() -> None:
    async with harness() as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"/metrics\n")
        await node.server.stop()
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [("9644", ("", 9644)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:80", ("::1", 80)), ("http://h:5/", ("h", 5))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_address(text)
