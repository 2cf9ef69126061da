"""An instance of the registry in the test's process, whose topic is a list. It leads, and serves HTTP without a socket."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ottla.registry.access import Access
from ottla.registry.checking import Checker
from ottla.registry.election import Identity
from ottla.registry.log import LogPlace
from ottla.registry.members import Members
from ottla.registry.registry import SchemaRegistry
from ottla.registry.registry_state import RegistryState
from ottla.registry.rest.app import Application
from ottla.registry.schema_records import Record
from ottla.server.clock import Clock
from tests.manual_clock import ManualClock

SELF = Identity("http", "127.0.0.1", 8081)


def members(secret: bytes, clock: Clock | None = None) -> Members:
    """Return the signatures of a secret. Each such object uses other numbers."""
    return Members(secret, clock or ManualClock(), random.Random())


class MemoryLog:
    """The topic. A write is readable at once."""

    is_writable = True
    cluster_id = "XYZ"

    def __init__(self) -> None:
        self.state = RegistryState()
        self.rows: list[Record] = []

    @property
    def place(self) -> LogPlace:
        return LogPlace(bytes(16), len(self.rows))

    async def lead(self) -> None:
        return

    def resign(self) -> None:
        return

    async def sync(self, place: LogPlace | None = None) -> LogPlace:
        await asyncio.sleep(0)
        return self.place

    async def append(self, records: Sequence[Record]) -> LogPlace:
        for row in records:
            self.rows.append(row)
            self.state.replay(*row)
        return self.place


class Client:
    """A user of an instance."""

    def __init__(self, application: Application, user: str = "", address: str = "127.0.0.1") -> None:
        transport = httpx.ASGITransport(application, client=(address, 1))
        login = base64.b64encode(f"{user}:{user}-pw".encode()).decode()
        headers = {"Authorization": f"Basic {login}"} if user else {}
        self._http = httpx.AsyncClient(transport=transport, base_url="http://registry", headers=headers, timeout=60)

    async def ask(self, method: str, path: str, body: object | None = None) -> tuple[int, Any]:
        """Return the error code, or the status of a good response, and the JSON. A body of bytes is sent as it is."""
        raw = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        url = httpx.URL("http://registry").copy_with(raw_path=path.encode())
        answer = await self._http.request(method, url, headers={"Content-Type": "application/json"}, **raw)
        made: Any = answer.json() if answer.content else None
        return (made["error_code"] if answer.status_code >= 400 else answer.status_code), made


@asynccontextmanager
async def leader(
    access: Access | None = None, checker: Any = None
) -> AsyncIterator[tuple[SchemaRegistry, Application]]:
    """An instance that leads, with processes that check schemas."""
    log: Any = MemoryLog()
    checker = checker or Checker()
    registry = SchemaRegistry(log, checker, "BACKWARD")
    await registry.set_leader(SELF, True)
    try:
        yield registry, Application(registry, access or Access())
    finally:
        await checker.close()
