"""A write that goes on to the leader, over leaders that answer only a part of it, or nothing while another instance leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ottla.registry.access import Access
from ottla.registry.election import Identity
from ottla.registry.registry import Registry
from ottla.registry.rest.app import Application

FORWARDING = 50003
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Ottla-Offset: 7\r\n\r\n{"id": 1}'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Log:
    """A log that is read as far as one asks."""

    synced: int | None = None

    async def sync(self, offset: int) -> int:
        self.synced = offset
        return offset

    def resign(self) -> None:
        return


@asynccontextmanager
async def follower(answer: Serve) -> AsyncIterator[tuple[Any, Registry, httpx.AsyncClient]]:
    """An instance whose leader is a server that does what `answer` does: its log, itself, and a client of it."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    log: Any = Log()
    checker: Any = None
    registry = Registry(log, checker, "BACKWARD")
    await registry.set_leader(Identity("http", "127.0.0.1", server.sockets[0].getsockname()[1]), False)
    transport = httpx.ASGITransport(Application(registry, Access(None, None)))
    async with server, httpx.AsyncClient(transport=transport, base_url="http://registry", timeout=30) as client:
        yield log, registry, client


async def test_an_answer_that_the_leaders_death_cuts_off_is_none() -> None:
    length = 9

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER % length)
        writer.close()

    async with follower(answer) as (log, _, client):
        whole = await client.post("/subjects/s/versions", json={})
        assert (whole.status_code, whole.json(), log.synced) == (200, {"id": 1}, 7)
        log.synced, length = None, 10
        cut = await client.post("/subjects/s/versions", json={})
        assert (cut.status_code, cut.json()["error_code"], log.synced) == (500, FORWARDING, None)


async def test_a_leader_that_is_silent_is_waited_for_until_another_leads() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        over.set()
        writer.close()

    async with follower(silent) as (_, registry, client), asyncio.timeout(30):
        waiting = asyncio.create_task(client.post("/subjects/s/versions", json={}))
        await asked.wait()
        leader = registry.leader
        for still in (None, leader):
            await registry.set_leader(still, False)
        assert not waiting.done()
        await registry.set_leader(Identity("http", "127.0.0.1", 1), False)
        assert (await waiting).json()["error_code"] == FORWARDING
        await over.wait()
