"""A pipelined channel to a peer: requests as objects, answers as objects. For replication, raft, forwarding, commands.

A channel connects when it is first used, learns the peer's versions (ApiVersions) and then sends. It is one connection
at a time: when that is lost, all requests in flight raise `ChannelClosed`, and the next request connects again. The
caller does retries and back-off, and finds the right peer. TLS and login are those of its `PeerSecurity`.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from ottla import __version__
from ottla.protocol.api import APIS, Api, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import info_of
from ottla.server.network.channel_protocol import (
    ChannelClosed,
    ChannelProtocol,
    HandshakeLost,
    RequestLost,
    RequestTimeout,
    SecurityRejected,
    Unreachable,
)
from ottla.server.network.peer_security import PLAINTEXT, LoginRejected, PeerSecurity
from ottla.server.network.tls_stream import TlsStream
from ottla.server.world import World

#: Kafka's request.timeout.ms for clients.
REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
#: The part of a SASL session after which a channel logs in on a new connection. Java clients take 0.85 to 0.95.
RENEWED_AFTER = 0.85
SOFTWARE_NAME = "ottla"
#: The version of the first ApiVersions request. An older peer answers with UNSUPPORTED_VERSION in v0.
API_VERSIONS_VERSION = 3


class Channel:
    """Requests to one address. Safe to use from many tasks at once."""

    def __init__(
        self, world: World, host: str, port: int, client_id: str | None = None, security: PeerSecurity = PLAINTEXT
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self._world = world
        self._security = security
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
        return {} if self._protocol is None else self._protocol.versions

    async def request(self, request: object, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """The answer, or ChannelClosed, RequestTimeout, or KafkaError(UNSUPPORTED_VERSION) before anything is sent.

        `version` None: the highest that both sides have. The time is for connecting and for the answer, each.
        """
        protocol = self._protocol if self.is_open else await self._connect_within(timeout_ms)
        assert protocol is not None
        api = api_of(request)
        return await protocol.send(self.client_id, request, api, self._agree(protocol, api, version), timeout_ms)

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the peer's versions: API key to lowest and highest version."""
        return (await self.connect()).versions

    async def connect(self) -> ChannelProtocol:
        """Connect now, unless connected; many callers share one attempt."""
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
        """Give up the connection; what is in flight raises ChannelClosed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.close(ChannelClosed(f"the channel to {self.where} has been closed"))

    async def _connect(self) -> ChannelProtocol | ChannelClosed:
        """Give its failure instead of raising it: it belongs to those who wait, not to the log of failed tasks."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                protocol = ChannelProtocol(self._world, self.where)
                await self._open(protocol)
                try:
                    await self._negotiate(protocol)
                    await self._log_in(protocol)
                except BaseException:
                    protocol.close(ChannelClosed(f"no common ground with {self.where}"))
                    raise
        except TimeoutError:
            return ChannelClosed(f"{self.where} did not take a connection within {CONNECT_TIMEOUT_MS} ms")
        except RequestLost as error:  # a proxy takes connections for a node that has ended, and closes them
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
        """Connect, and complete the TLS handshake if there is to be one."""
        network, tls = self._world.network, self._security.tls
        if tls is None:
            await network.connect(self.host, self.port, lambda: protocol)
            return
        over = asyncio.Event()  # secured, or closed
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
        api = APIS[ApiKey.API_VERSIONS]
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response: ApiVersionsResponse = await protocol.send(
            self.client_id, request, api, API_VERSIONS_VERSION, CONNECT_TIMEOUT_MS
        )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await protocol.send(self.client_id, request, api, 0, CONNECT_TIMEOUT_MS)
        if response.error_code != ErrorCode.NONE:
            raise ChannelClosed(f"{self.where} refused ApiVersions with {ErrorCode(response.error_code).name}")
        protocol.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    async def _log_in(self, protocol: ChannelProtocol) -> None:
        login = self._security.login
        if login is None:
            return

        def send(request: object, api: Api, version: int) -> asyncio.Future[Any]:
            return protocol.send(self.client_id, request, api, version, CONNECT_TIMEOUT_MS)

        version = self._agree(protocol, APIS[ApiKey.SASL_AUTHENTICATE], None)
        lifetime_ms = await login.log_in(self.host, self.where, send, version)
        if lifetime_ms > 0:
            call_later = self._world.clock.call_later
            call_later(lifetime_ms * RENEWED_AFTER, partial(self._renew, protocol))
            call_later(lifetime_ms, partial(protocol.close, ChannelClosed(f"the session at {self.where} has ended")))

    def _renew(self, protocol: ChannelProtocol) -> None:
        """The next request connects and logs in again; what is in flight by then is still answered on the old connection."""
        if self._protocol is protocol:
            self._protocol = None

    def _agree(self, protocol: ChannelProtocol, api: Api, version: int | None) -> int:
        low, high = protocol.versions.get(api.key, (0, -1))
        low, high = max(low, api.min_version), min(high, api.max_version)
        if version is None:
            version = high
        if not low <= version <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.where} serves {api.name} in versions {low} to {high}, not {version}",
            )
        return version


def api_of(request: object) -> Api:
    """Return the API of a request object."""
    key = info_of(type(request)).key
    assert key is not None, f"{request!r} is not a request"
    return APIS[ApiKey(key)]
