"""A write that is forwarded to the leader, with leaders that respond only in part, or not at all while another instance leads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ottla.registry.access import Access, read_permissions
from ottla.registry.election import Identity
from ottla.registry.log import LogPlace
from ottla.registry.members import ANSWERED, SIGNED, Members
from ottla.registry.registry import SchemaRegistry
from ottla.registry.rest.app import Application
from ottla.registry.rest.forwarding import NO_LINK, Link
from tests.manual_clock import ManualClock
from tests.ottla.registry.memory import leader, members

FORWARDING = 50003
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Ottla-Offset: AAAAAAAAAAAAAAAAAAAAAA:7\r\n\r\n{"id": 1}'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Log:
    """A log in which a reader is always at the requested place."""

    synced: LogPlace | None = None

    async def sync(self, place: LogPlace) -> LogPlace:
        self.synced = place
        return place

    def resign(self) -> None:
        return


@asynccontextmanager
async def follower(
    answer: Serve, link: Link = NO_LINK, access: Access | None = None
) -> AsyncIterator[tuple[Any, SchemaRegistry, httpx.AsyncClient]]:
    """An instance whose leader is a server that behaves as `answer` says: its log, itself, and a client of it."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    log: Any = Log()
    checker: Any = None
    registry = SchemaRegistry(log, checker, "BACKWARD")
    await registry.set_leader(Identity("http", "127.0.0.1", server.sockets[0].getsockname()[1]), False)
    transport = httpx.ASGITransport(Application(registry, access or Access(None, None), link))
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
        assert (whole.status_code, whole.json(), log.synced) == (200, {"id": 1}, (bytes(16), 7))
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


SECRET_BYTES = b"a secret of the instances"
CLOCK, EARLIER = ManualClock(wall_ms=1_000_000), ManualClock(wall_ms=400_000)
SECRET = members(SECRET_BYTES, CLOCK)
ALICE = {"Authorization": "Basic YWxpY2U6YWxpY2UtcHc="}


async def test_the_leader_gets_the_name_of_the_user_and_no_password_and_an_answer_without_the_secret_is_none() -> None:
    asked: list[bytes] = []

    async def rogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER % 9)
        writer.close()

    access = Access({"alice": "alice-pw"})
    async with follower(rogue, Link(members=SECRET), access) as (log, _, client):
        answer = await client.post("/subjects/s/versions", json={}, headers=ALICE)
        assert (answer.json()["error_code"], log.synced) == (FORWARDING, None)
        assert b"uthorization" not in asked[0] and SIGNED.encode() in asked[0]
    async with follower(rogue, Link(), access) as (_, _, client):
        refused = await client.post("/subjects/s/versions", json={}, headers=ALICE)
        assert (refused.json()["error_code"], len(asked)) == (FORWARDING, 1)
        assert "--secret-file" in refused.json()["message"]
    async with follower(rogue, Link(ssl.create_default_context())) as (_, _, client):
        refused = await client.post("/subjects/s/versions", json={})
        assert ("in clear" in refused.json()["message"], len(asked)) == (True, 1)


async def test_a_signed_request_is_taken_once_as_it_was_signed_and_by_those_who_know_the_secret() -> None:
    path = "/subjects/s/versions"
    body = b'{"schema": "\\"int\\""}'

    def signed(secret: Members = SECRET, target: str = path, data: bytes = body) -> str:
        return secret.signed("alice", "10.0.0.1", "POST", target, data)[0]

    access = Access({"alice": "alice-pw"}, read_permissions("alice s write\n"))
    async with leader(access) as (registry, _):
        transport = httpx.ASGITransport(Application(registry, access, Link(members=SECRET)))
        async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
            good = signed()
            taken = await client.post(path, content=body, headers={SIGNED: good})
            assert (taken.status_code, ANSWERED in taken.headers) == (200, True)
            for header in (
                good,
                signed(members(b"another secret of 16", CLOCK)),
                signed(members(SECRET_BYTES, EARLIER)),
                signed(target="/subjects/t/versions"),
                signed(data=b"{}"),
                "x",
                "x y",
                "",
            ):
                refused = await client.post(path, content=body, headers={SIGNED: header})
                assert refused.status_code == 401, header
            # The user's permissions apply.
            other = "/subjects/t/versions"
            denied = await client.post(other, content=body, headers={SIGNED: signed(target=other)})
            assert (denied.status_code, ANSWERED in denied.headers) == (403, True)
