"""Connections that send nothing, send slowly or do not read: they are closed within seconds, and make room for clients with
requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.local.certificates import Authority
from ottla.web import connections
from ottla.web.server import HttpServer

ANSWER = b"HTTP/1.1 200"
LARGE = 8 * 1024 * 1024
#: Less than each bound of a server.
CLOSED_S = 9.0


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, and responds; the response to `/large` is larger than the sockets' buffers."""
    while (await receive()).get("more_body"):
        pass
    body = b"x" * LARGE if scope["path"] == "/large" else b"hello"
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Watched(HttpServer):
    """Reports when it has a connection, and when it has lost it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.emptied, self.taken = asyncio.Event(), asyncio.Event()

    async def on_tick(self, counter: int) -> bool:
        if len(self.connections):
            self.emptied.clear()
            self.taken.set()
        else:
            self.emptied.set()
        return bool(await super().on_tick(counter))


@asynccontextmanager
async def serving(
    connections_max: int, served: Any = application, **options: Any
) -> AsyncIterator[tuple[Watched, int]]:
    server = Watched(served, connections_max, stop_s=1, **options)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield server, port
        finally:
            server.should_exit = server.force_exit = True
            async with asyncio.timeout(20):
                await task


async def connected(port: int, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(20):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:  # it is starting
                await asyncio.sleep(0.01)
    writer.write(data)
    return reader, writer


async def asked(port: int, path: str = "/") -> bytes:
    reader, writer = await connected(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(20):
        found = await reader.read(len(ANSWER))
    writer.close()
    return found


async def is_closed(reader: asyncio.StreamReader, seconds: float = 20) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(65536):
                pass
            return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


SLOW = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",
    "half a body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    "half a chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "a second head": b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX: ",
}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dict.fromkeys(connections.LIMITS_S, 0.5)
    monkeypatch.setattr(connections, "LIMITS_S", limits)
    monkeypatch.setattr(connections, "UNREAD_S", 0.5)


@pytest.mark.parametrize("what", SLOW)
async def test_one_that_does_not_finish_its_request_is_closed(short: None, what: str) -> None:
    async with serving(10) as (_, port):
        reader, writer = await connected(port, SLOW[what])
        assert await is_closed(reader)
        writer.close()
        assert await asked(port) == ANSWER


async def test_one_that_does_not_read_its_answer_is_closed_and_one_that_reads_gets_all(short: None) -> None:
    async with serving(10) as (server, port):
        stuck = socket.create_connection(("127.0.0.1", port))
        stuck.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        reader, writer = await connected(port, b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            assert len(await reader.read(-1)) > LARGE
            server.emptied.clear()
            writer.close()
            await server.emptied.wait()
        stuck.close()


async def test_silent_ones_make_room_for_one_that_asks() -> None:
    async with serving(5) as (server, port):
        kept, writer = await connected(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await kept.readexactly(len(ANSWER)) == ANSWER
        silent = [await connected(port, SLOW["half a head"]) for _ in range(12)]
        assert await asked(port) == ANSWER
        assert len(server.connections) <= 5
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            await kept.readuntil(b"hello")
            await kept.readuntil(b"hello")
        assert await is_closed(silent[0][0]), "the first one has waited longest"
        for _, each in silent:
            each.close()
        writer.close()


async def test_answers_that_no_one_reads_are_bounded_in_bytes_and_the_largest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "UNREAD_BYTES_MAX", LARGE // 4)
    async with serving(10) as (server, port):
        stuck = socket.create_connection(("127.0.0.1", port))
        stuck.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(CLOSED_S):
            await server.taken.wait()
            await server.emptied.wait()
        stuck.close()


async def test_those_whose_requests_are_answered_make_no_room() -> None:
    asked_for, answered = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        asked_for.set()
        await answered.wait()
        await application(scope, receive, send)

    async with serving(1, slow) as (_, port):
        reader, writer = await connected(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(CLOSED_S):
            await asked_for.wait()
            refused, other = await connected(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await refused.read(len(ANSWER)) == b"HTTP/1.1 503"
            answered.set()
            assert await reader.read(len(ANSWER)) == ANSWER
        writer.close()
        other.close()


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    issued = Authority.create("test").issue("localhost", ["localhost"])
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(issued.chain_pem)
    key.write_text(issued.key_pem)
    return {"certificate": str(certificate), "key": str(key)}


async def test_a_tls_handshake_that_does_not_come_to_its_end_is_closed(short: None, tls: dict[str, str]) -> None:
    async with serving(5, **tls) as (_, port):
        reader, writer = await connected(port)
        assert await is_closed(reader, CLOSED_S)
        writer.close()


async def test_a_silent_tls_handshake_makes_room_too(tls: dict[str, str]) -> None:
    async with serving(5, **tls) as (server, port):
        silent = [await connected(port) for _ in range(12)]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await reader.readexactly(len(ANSWER)) == ANSWER
        assert len(server.connections) <= 5
        for _, each in (*silent, (reader, writer)):
            each.close()
