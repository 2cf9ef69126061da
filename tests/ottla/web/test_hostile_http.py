"""Malformed and endless requests to each kind of HTTP server: an error or the end of the connection within seconds, and the next is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from ottla.server.admin import AdminServer
from ottla.server.metrics import Registry
from ottla.server.world import RealWorld
from tests.ottla.web.test_connections import connected, serving

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
HOSTILE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n",
    "a huge path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a huge header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a line without an end": b"GET /" + b"a" * 200_000,
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n",
    "a length of 5,000 digits": POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a chunk of 2^80": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\nab",
    "a chunk that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "an encoding that is none": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "a null": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an empty line": b"\r\n" * 10_000,
}

Serving = Callable[[], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def http_server() -> AsyncIterator[int]:
    async with serving(10) as (_, port):
        yield port


@asynccontextmanager
async def admin_server() -> AsyncIterator[int]:
    real = RealWorld(asyncio.get_running_loop())
    server = AdminServer(real.world, "127.0.0.1", 0, Registry(), lambda: (), lambda: ())
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()
        await real.close()


async def answer_to(port: int, data: bytes) -> bytes:
    """What a server sends until it closes; nothing if it resets the connection."""
    reader, writer = await connected(port, data)
    try:
        async with asyncio.timeout(20):
            if writer.can_write_eof():
                writer.write_eof()
            return await reader.read(-1)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("server", [http_server, admin_server])
async def test_none_is_served_and_the_next_one_is(server: Serving) -> None:
    async with server() as port:
        for name, data in HOSTILE.items():
            answer = await answer_to(port, data)
            assert not answer or answer.startswith(b"HTTP/1.1 4"), (name, answer[:80])
            assert (await answer_to(port, REQUEST)).startswith(b"HTTP/1.1 200"), name
