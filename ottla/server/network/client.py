"""A pipelined channel to a peer, with requests and responses as objects.

It is used for replication, raft, forwarding and commands.

A channel connects when it is first used, learns the peer's versions (ApiVersions) and then sends. It has one connection at a
time: when that is lost, all requests in flight raise `ChannelClosed`, and the next request connects again. The caller does
retries and back-off, and finds the right peer. TLS and login come from its `PeerSecurity`.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from ottla import __version__
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.releases import NODE_SOFTWARE
from ottla.server.network.channel_protocol import ChannelProtocol, carried_out
from ottla.server.network.peer_security import PLAINTEXT, LoginRejected, PeerSecurity
from ottla.server.network.tls_stream import TlsStream
from ottla.server.network.wire import (
    RENEWED_AFTER,
    Ask,
    ChannelClosed,
    HandshakeLost,
    RequestLost,
    RequestTimeout,
    SecurityRejected,
    Unreachable,
    agree_on_versions,
    api_of,
)
from ottla.server.world import World

#: Kafka's request.timeout.ms for clients.
REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000


class Channel:
    """A channel to one address. Many tasks may use it at once."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        client_id: str | None = None,
        security: PeerSecurity = PLAINTEXT,
        software: str = NODE_SOFTWARE,
    ) -> None:
        """Take in `software` the name for ApiVersions (KIP-511).

        Nodes of Ottla recognise each other by it, and offer each other all their versions.
        """
        self.host = host
        self.port = port
        self.client_id = client_id
        self._world = world
        self._security = security
        self._software = software
        self._protocol: ChannelProtocol | None = None
        self._connecting: asyncio.Task[ChannelProtocol | ChannelClosed] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Channel {self.where} {'open' if self.is_open else 'closed'}>"

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_open(self) -> bool:
        return self._protocol is not None and not self._protocol.closed

    @property
    def known_versions(self) -> dict[int, tuple[int, int]]:
        """The peer's versions by API key at the last connection; empty before the first one."""
        return {} if self._protocol is None else self._protocol.wire.versions

    async def request(self, request: object, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Return the response.

        Raises ChannelClosed, RequestTimeout, or KafkaError(UNSUPPORTED_VERSION) before anything is sent.

        `version` None means the highest version that both sides have. The time limit is for connecting, and again for the
        response.
        """
        protocol = self._protocol if self.is_open else await self._connect_within(timeout_ms)
        assert protocol is not None
        api = api_of(request)
        return await protocol.send(self.client_id, request, api, protocol.wire.agreed(api, version), timeout_ms)

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the peer's versions: lowest and highest version by API key."""
        return (await self.connect()).wire.versions

    async def connect(self) -> ChannelProtocol:
        """Connect now, unless connected. Many callers share one attempt."""
        if self._closed:
            raise ChannelClosed(f"the channel to {self.where} has been closed")
        if self._protocol is not None and not self._protocol.closed:
            return self._protocol
        if self._connecting is None:
            self._connecting = self._world.spawn(self._connect(), f"connect {self.where}")
        connecting = self._connecting
        try:
            outcome = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self._closed:
                raise ChannelClosed(f"the channel to {self.where} has been closed") from None
            raise
        if isinstance(outcome, ChannelClosed):
            raise outcome
        return outcome

    async def _connect_within(self, timeout_ms: int) -> ChannelProtocol:
        """Connect. The attempt continues after the timeout of this caller, because an unreachable peer takes CONNECT_TIMEOUT_MS."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.connect()
        except TimeoutError:
            raise RequestTimeout(f"{self.where} did not take a connection within {timeout_ms} ms") from None

    def close(self) -> None:
        """Close the connection. Requests in flight raise ChannelClosed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.close(ChannelClosed(f"the channel to {self.where} has been closed"))

    async def _connect(self) -> ChannelProtocol | ChannelClosed:
        """Return the failure instead of raising it: it is for the waiting callers, not for the log of failed tasks."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                protocol = ChannelProtocol(self._world, self.where)
                await self._open(protocol)
                try:
                    await self._negotiate(protocol)
                except BaseException:
                    protocol.close(ChannelClosed(f"no common ground with {self.where}"))
                    raise
        except TimeoutError:
            return ChannelClosed(f"{self.where} did not take a connection within {CONNECT_TIMEOUT_MS} ms")
        except RequestLost as error:  # a proxy accepts connections for a node that has ended, and closes them
            return HandshakeLost(*error.args)
        except ChannelClosed as error:
            return error
        except LoginRejected as refused:
            return SecurityRejected(f"the login at {self.where} failed: {refused}")
        except OSError as error:
            kind = ChannelClosed if isinstance(error, ConnectionError) else Unreachable
            reason = (
                os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or error
            )
            return kind(f"cannot connect to {self.where}: {reason}")
        finally:
            self._connecting = None
        self._protocol = protocol
        return protocol

    async def _open(self, protocol: ChannelProtocol) -> None:
        """Connect, and complete the TLS handshake if there is TLS."""
        network, tls = self._world.network, self._security.tls
        if tls is None:
            await network.connect(self.host, self.port, lambda: protocol)
            return
        over = asyncio.Event()  # set when the connection is secured or closed
        protocol.on_closed = over.set
        stream = TlsStream(
            protocol,
            tls.context,
            self._world.clock,
            on_secured=lambda stream: over.set(),
            on_failed=lambda reason: protocol.close(SecurityRejected(f"the connection to {self.where}: {reason}")),
            server_name=self.host,
        )
        await network.connect(self.host, self.port, lambda: stream)
        try:
            await over.wait()
        except BaseException:
            stream.abort()
            raise
        if protocol.failure is not None:
            raise protocol.failure

    async def _negotiate(self, protocol: ChannelProtocol) -> None:
        """Agree on versions, then log in."""

        def send(ask: Ask) -> asyncio.Future[Any]:
            return protocol.send(self.client_id, ask.request, api_of(ask.request), ask.version, CONNECT_TIMEOUT_MS)

        await carried_out(agree_on_versions(protocol.wire, self._software, __version__), send)
        login = self._security.login
        if login is None:
            return
        version = protocol.wire.agreed(APIS[ApiKey.SASL_AUTHENTICATE])
        lifetime_ms = await login.log_in(self.host, self.where, send, version)
        if lifetime_ms > 0:
            call_later = self._world.clock.call_later
            call_later(lifetime_ms * RENEWED_AFTER, partial(self._renew, protocol))
            call_later(lifetime_ms, partial(protocol.close, ChannelClosed(f"the session at {self.where} has ended")))

    def _renew(self, protocol: ChannelProtocol) -> None:
        """Let the next request connect and log in again. Responses to requests in flight still come on the old connection."""
        if self._protocol is protocol:
            self._protocol = None
