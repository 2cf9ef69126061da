"""The proxy's connection to a broker. If the client's properties ask for it, there are TLS and a login before frames pass."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla import __version__
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.releases import COMMAND_SOFTWARE
from ottla.server.address import Address
from ottla.server.network.channel_protocol import carried_out
from ottla.server.network.client import CONNECT_TIMEOUT_MS
from ottla.server.network.frames import Buffer as FrameBuffer
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.peer_security import ClientLogin, LoginRejected, PeerSecurity
from ottla.server.network.tls_stream import TlsStream
from ottla.server.network.wire import Ask, ChannelClosed, ClientWire, SecurityRejected, agree_on_versions, api_of
from ottla.server.world import World
from ottla.traffic.relay import RelaySide

CLIENT_ID = "ottla-record"


async def connect_to_broker(world: World, to: Address, security: PeerSecurity, inbox: ReceiveBuffer) -> RelaySide:
    """Return a connection that is ready for a client's requests.

    Raises:
        ChannelClosed, OSError: the connection cannot be made within ten seconds.
    """
    side = RelaySide(inbox, world.clock)
    handshake = _Handshake(side, str(to))
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
            await _open(world, to, security, side, handshake)
            if security.login is not None:
                await handshake.log_in(security.login, to.host)
    except TimeoutError:
        side.abort()
        raise ChannelClosed(f"{to} did not take a connection within {CONNECT_TIMEOUT_MS} ms") from None
    except LoginRejected as refused:
        side.abort()
        raise SecurityRejected(f"the login at {to} failed: {refused}") from None
    except BaseException:
        side.abort()
        raise
    side.on_closed = None
    return side


async def _open(world: World, to: Address, security: PeerSecurity, side: RelaySide, handshake: _Handshake) -> None:
    if security.tls is None:
        await world.network.connect(to.host, to.port, lambda: side)
        return
    secured: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    handshake.waiting.add(secured)
    stream = TlsStream(
        side,
        security.tls.context,
        world.clock,
        on_secured=lambda stream: handshake.succeed(secured),
        on_failed=lambda reason: handshake.fail(SecurityRejected(f"the connection to {to}: {reason}")),
        server_name=to.host,
    )
    await world.network.connect(to.host, to.port, lambda: stream)
    await secured


class _Handshake:
    """The proxy's own requests to a broker, before the client's requests pass."""

    def __init__(self, side: RelaySide, where: str) -> None:
        self._side = side
        self._wire: ClientWire[asyncio.Future[Any]] = ClientWire(where)
        self.waiting: set[asyncio.Future[Any]] = set()
        side.take = self._answered
        side.on_closed = lambda: self.fail(ChannelClosed(f"{where} has closed the connection"))

    async def log_in(self, login: ClientLogin, host: str) -> None:
        await carried_out(agree_on_versions(self._wire, COMMAND_SOFTWARE, __version__), self._send)
        version = self._wire.agreed(APIS[ApiKey.SASL_AUTHENTICATE])
        await login.log_in(host, self._wire.where, self._send, version)

    def fail(self, why: ChannelClosed) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(why)
        self.waiting.clear()

    def succeed(self, future: asyncio.Future[Any], result: object = None) -> None:
        if not future.done():
            future.set_result(result)
        self.waiting.discard(future)

    def _send(self, ask: Ask) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.add(future)
        pieces = self._wire.request(CLIENT_ID, ask.request, api_of(ask.request), ask.version, future)
        self._side.write(b"".join(pieces))
        return future

    def _answered(self, buf: FrameBuffer, pos: int, end: int) -> bytes:
        try:
            sent = self._wire.answered()
            response = self._wire.response(sent, bytes(memoryview(buf)[pos:end]), 0, end - pos)
        except ChannelClosed as failure:
            self.fail(failure)
            return b""
        self.succeed(sent.waiter, response)
        return b""
