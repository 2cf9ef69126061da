"""Malformed, slow and endless requests, and those of other sites, to each HTTP server of this project.

Within seconds each gets an error, or the end of the connection, and the next request is served. `mutants.py` removes one
guard at a time, and a test here must notice that.
"""

from __future__ import annotations

import asyncio

import pytest

from ottla.server import admin
from ottla.web import connections
from tests.ottla.web.servers import REAL, Served
from tests.ottla.web.test_connections import ANSWER, SLOW, connected, is_closed

POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
HOSTILE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n",
    "a huge path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a huge header": b"GET PATH HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a line without an end": b"GET /" + b"a" * 200_000,
    "many headers": b"GET PATH HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n",
    "a length of 5,000 digits": POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a chunk of 2^80": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\nab",
    "a chunk that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "an encoding that is none": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "a null": b"GET PATH\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an empty line": b"\r\n" * 10_000,
}
#: Requests that pages of other sites can make: a method, headers, and the status of a server behind the rules. A server that
#: shows only metrics accepts no POST, and rejects unknown names; it never allows another site to read a response.
OF_OTHER_SITES = {
    "its own name": ("GET", "Host: evil.example", 400),
    "a name like an address": ("GET", "Host: 127.0.0.1.evil.example", 400),
    "a page's origin": ("GET", "Host: localhost\r\nOrigin: http://evil.example", 403),
    "an origin that is hidden": ("POST", "Host: localhost\r\nOrigin: null", 403),
    "an image": ("GET", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors", 403),
    "a form": ("POST", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate", 403),
    "a text": ("POST", "Host: localhost\r\nContent-Type: text/plain", 415),
    "a form of parts": ("POST", "Host: localhost\r\nContent-Type: multipart/form-data; boundary=x", 415),
}
SMALL = 5
#: Twenty times the bounds of these tests, and less than those of the servers (10 s for a head).
SLOW_S_MAX = 9.0


async def answer_to(port: int, data: bytes) -> bytes:
    """Return the bytes that a server sends until it closes, or nothing if it resets the connection."""
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


async def status(port: int, method: str, path: str, headers: str = "Host: localhost") -> tuple[int, bytes]:
    """Return the status of a response, and its head."""
    rest = "\r\nContent-Length: 0" if method == "POST" else ""
    answer = await answer_to(port, f"{method} {path} HTTP/1.1\r\n{headers}{rest}\r\nConnection: close\r\n\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 "), answer[:80]
    return int(head.split()[1]), head.lower()


@pytest.fixture(params=REAL, ids=lambda path: path.removesuffix(".py"))
def served(request: pytest.FixtureRequest) -> Served:
    return REAL[request.param]


async def test_none_is_served_and_the_next_one_is(served: Served) -> None:
    async with served.start() as port:
        for name, data in HOSTILE.items():
            answer = await answer_to(port, data.replace(b"PATH", served.path.encode()))
            assert not answer or answer.startswith(b"HTTP/1.1 4"), (name, answer[:80])
            assert (await status(port, "GET", served.path))[0] == 200, name


async def test_a_page_of_another_site_gets_nothing(served: Served) -> None:
    async with served.start() as port:
        for name, (method, headers, wanted) in OF_OTHER_SITES.items():
            found, head = await status(port, method, served.path, headers)
            assert b"access-control" not in head, name
            if served.is_ruled or wanted == 400:
                assert found == wanted, name
            else:
                assert found == (405 if method == "POST" else 200), name
        assert (await status(port, "GET", served.path, "Host: localhost\r\nSec-Fetch-Site: none"))[0] == 200


async def test_a_request_that_does_not_come_to_its_end_ends_with_its_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LIMITS_S", dict.fromkeys(connections.LIMITS_S, 0.5))
    monkeypatch.setattr(admin, "IDLE_TIMEOUT_MS", 500)
    async with served.start() as port:
        made = [await connected(port, data) for data in SLOW.values()]
        closed = await asyncio.gather(*(is_closed(reader, SLOW_S_MAX) for reader, _ in made))
        assert [name for name, is_over in zip(SLOW, closed, strict=True) if not is_over] == []
        for _, writer in made:
            writer.close()
        assert (await status(port, "GET", served.path))[0] == 200


async def test_silent_connections_make_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{served.connections_of}.CONNECTIONS_MAX", SMALL)
    async with served.start() as port:
        silent = [await connected(port, SLOW["half a head"]) for _ in range(2 * SMALL)]
        request = f"GET {served.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        reader, writer = await connected(port, request)
        async with asyncio.timeout(20):
            assert await reader.read(len(ANSWER)) == ANSWER
        assert await is_closed(silent[0][0], SLOW_S_MAX), "the first one has waited longest"
        for _, each in (*silent, (reader, writer)):
            each.close()


async def test_a_body_for_a_listener_that_expects_none_ends_the_connection() -> None:
    """It would be taken for the next request."""
    async with REAL["server/admin.py"].start() as port:
        smuggled = (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 35\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = await answer_to(port, smuggled)
        assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
