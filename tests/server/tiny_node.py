"""A listener with a handful of routes, and a client that speaks in bytes, for the tests in this folder."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ottla.protocol.api import encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.releases import DEFAULT, Advertised
from ottla.server.clock import TimerWheel
from ottla.server.config.listeners import Endpoint
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limited_dispatch import dispatcher as dispatcher_of
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import Listener, ServerTls
from ottla.server.network.route import Route, RouteTable
from ottla.server.sasl.login import LoginRules, Logins
from ottla.server.world import RealWorld, World

HEARTBEAT, API_VERSIONS, PRODUCE, FETCH, LIST_GROUPS = 12, 18, 0, 1, 16
ANSWER_TIMEOUT_S = 10


class Heartbeats:
    """Answers Heartbeats at once, or, for members named "wait...", when the test wants it."""

    def __init__(self) -> None:
        self.members: list[str] = []
        self.waiting: dict[str, Reply] = {}
        self.cancelled: list[str] = []

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> Answer[HeartbeatResponse]:
        self.members.append(request.member_id)
        if not request.member_id.startswith("wait"):
            return HeartbeatResponse(error_code=request.generation_id)
        reply = self.waiting[request.member_id] = Reply()
        reply.on_cancel = lambda: self.cancelled.append(request.member_id)
        return reply


class TinyNode:
    """One listener on a free port."""

    def __init__(
        self,
        listener: Listener,
        heartbeats: Heartbeats,
        limits: ConnectionLimits,
        api_versions: ApiVersionsHandler,
        world: World,
        dispatcher: Dispatcher,
    ) -> None:
        self.listener = listener
        self.world = world
        self.dispatcher = dispatcher
        self.api_versions = api_versions
        self.heartbeats = heartbeats
        self.limits = limits

    @property
    def port(self) -> int:
        return self.listener.port

    async def client(self, tls: ssl.SSLContext | None = None, limit: int = 2**24) -> RawClient:
        # uvloop's own TLS client loses unread bytes when the peer closes, so it must never stop reading.
        limit = 2**16 if tls is None else limit
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, limit=limit)
        return RawClient(reader, writer)


class RawClient:
    """A client that sends bytes and receives frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def correlation_ids(self, count: int) -> list[int]:
        return [int.from_bytes((await self.frame())[:4], "big") for _ in range(count)]

    async def is_closed_by_peer(self) -> bool:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def tiny_node(
    *routes: Route,
    limits: ConnectionLimits | None = None,
    port: int = 0,
    endpoint: Endpoint | None = None,
    tls: Callable[[World], ServerTls] | None = None,
    login_rules: LoginRules | None = None,
    advertised: Advertised = DEFAULT,
) -> AsyncIterator[TinyNode]:
    """Return the routes: Heartbeat, ApiVersions, and those of the test. With `login_rules` clients have to log in."""
    real = RealWorld(asyncio.get_running_loop())
    heartbeats = Heartbeats()
    api_versions = ApiVersionsHandler(lambda: Features({}, {}), advertised)
    table = RouteTable([Route(HEARTBEAT, heartbeats), Route(API_VERSIONS, api_versions), *routes], advertised)
    api_versions.set_routes(table)
    limits = limits or ConnectionLimits()
    wheel = TimerWheel(real.world.clock)
    dispatcher = dispatcher_of(table, real.world.clock, real.world.spawn)
    endpoint = endpoint or Endpoint("PLAINTEXT", "127.0.0.1", port)
    logins = None if login_rules is None else Logins(login_rules, dispatcher, real.world, wheel)
    server_tls = tls and tls(real.world)
    listener = Listener(real.world, endpoint, dispatcher, limits, ReceiveBuffer(), wheel, tls=server_tls, logins=logins)
    await listener.bind()
    await listener.accept()
    try:
        yield TinyNode(listener, heartbeats, limits, api_versions, real.world, dispatcher)
    finally:
        await listener.stop()
        listener.abort()
        wheel.close()
        await real.close()


def request(api_key: int, version: int, message: Any, correlation_id: int = 1, client_id: str | None = "test") -> bytes:
    """Return a complete frame."""
    body = encode_request_header(api_key, version, correlation_id, client_id)
    body += message if isinstance(message, bytes) else encode(message, version)
    return struct.pack(">i", len(body)) + body


def heartbeat(member_id: str = "m", correlation_id: int = 1, generation_id: int = 0, version: int = 4) -> bytes:
    message = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
    return request(HEARTBEAT, version, message, correlation_id)


async def until(condition: Any) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110  the conditions are states of the node, which has no events for tests
            await asyncio.sleep(0.001)
