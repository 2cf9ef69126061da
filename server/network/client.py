"""A pipelined channel to a peer: requests as objects, answers as objects. For replication, raft, forwarding, commands.

A channel connects when it is first used, learns the peer's versions (ApiVersions) and then sends. It is one connection
at a time: when that is lost, all requests in flight raise `ChannelClosed`, and the next request connects again. The
caller does retries and back-off, and finds the right peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.protocol.api import APIS, Api, ApiKey
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.headers import decode_response_header, encode_request_header, response_header_version
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.primitives import Pieces
from ottla.protocol.schema import info_of
from ottla.server.clock import TimerHandle
from ottla.server.network.frames import LARGE_FRAME_BYTES, Buffer, FrameProtocol, ReceiveBuffer, read_size
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.tls_stream import TlsStream
from ottla.server.security.sasl.client import LoginRefused

if TYPE_CHECKING:
    from ottla.server.world import World

#: Kafka's request.timeout.ms for clients.
REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
#: Up to this size the parts of a request are copied into one: cheaper than a system call with many parts.
JOIN_BYTES = 64 * 1024
#: The part of a SASL session after which a channel logs in on a new connection. Java clients take 0.85 to 0.95.
RENEWED_AFTER = 0.85
#: A peer that announces more than this is not one: Fetch answers are bounded by the requests' own limits, far below.
RESPONSE_BYTES_MAX = 2**30
SOFTWARE_NAME = "ottla"
SOFTWARE_VERSION = "0.1.0"
#: What is asked before the peer's versions are known; an older peer answers with error 35 in v0.
API_VERSIONS_VERSION = 3


class ChannelClosed(ConnectionError):
    """The peer could not be reached, or the connection was lost before the answer came."""


class RequestTimeout(ChannelClosed):
    """The answer did not come in time. Answers come in order, so the connection was given up with it."""


#: Called once with the answer, or with why there is none.
Answered = Callable[[Any, ChannelClosed | None], None]


class InFlight(NamedTuple):
    """A request that has been sent."""

    api: Api
    version: int
    correlation_id: int
    answered: Answered
    timeout_ms: int
    deadline_ms: int


class ChannelProtocol(FrameProtocol):
    """One connection of a channel. Answers own their memory: their records may be kept."""

    __slots__ = (
        "_in_flight", "_next_correlation_id", "_timer", "_timer_ms", "_transport", "_world", "closed", "failure", "on_closed", "versions", "where",
    )  # fmt: skip

    def __init__(self, world: World, where: str) -> None:
        super().__init__(ReceiveBuffer(2 * LARGE_FRAME_BYTES, pooled=0))
        self._world = world
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlight] = deque()
        self._next_correlation_id = 0
        #: One timer for all that is in flight. An answer leaves it alone: it looks when it fires, which is rarely.
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.where = where
        self.closed = False
        self.failure: ChannelClosed | None = None
        #: Called when nothing more is to be expected.
        self.on_closed: Callable[[], object] | None = None

    def send(
        self, client_id: str | None, request: object, api: Api, version: int, timeout_ms: int
    ) -> asyncio.Future[Any]:
        """Send now; the future is the answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(response: Any, failure: ChannelClosed | None) -> None:
            if not future.done():
                if failure is None:
                    future.set_result(response)
                else:
                    future.set_exception(failure)

        self.call(client_id, request, api, version, timeout_ms, answered)
        return future

    def call(
        self, client_id: str | None, request: object, api: Api, version: int, timeout_ms: int, answered: Answered
    ) -> None:
        """Send now; `answered` is called in the very turn of the loop in which the answer arrives."""
        correlation_id = self._register(api, version, timeout_ms, answered)
        self._write(client_id, request, api, version, correlation_id)

    def send_only(self, client_id: str | None, request: object, api: Api, version: int) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        self._next_correlation_id += 1
        self._write(client_id, request, api, version, self._next_correlation_id)

    def close(self, failure: ChannelClosed) -> None:
        if self.failure is None:
            self.failure = failure
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._fail_all()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this can be a cast only.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.drop_received()
        if self.failure is None:
            why = f": {exc}" if exc is not None else ""
            self.failure = ChannelClosed(f"the connection to {self.where} was closed{why}")
        self._fail_all()

    def serve(self, buf: Buffer, pos: int, end: int) -> int:
        while end - pos >= 4:
            (size,) = read_size(buf, pos)
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                self.close(ChannelClosed(f"{self.where} sent a frame of {size} bytes: is it a Kafka listener?"))
                return end
            stop = pos + 4 + size
            if stop > end:
                break
            if buf is self._inbox.data:
                # The next read will overwrite the receive buffer, but the caller reads the response later: it gets a copy.
                self._answer(bytes(memoryview(buf)[pos + 4 : stop]), 0, size)
            else:
                self._answer(buf, pos + 4, stop)
            if self.closed:
                return end
            pos = stop
        return pos

    def _register(self, api: Api, version: int, timeout_ms: int, answered: Answered) -> int:
        if self.failure is not None:
            raise self.failure
        self._next_correlation_id = correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        deadline_ms = self._world.clock.mono_ms() + timeout_ms
        self._in_flight.append(InFlight(api, version, correlation_id, answered, timeout_ms, deadline_ms))
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)
        return correlation_id

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.clock.call_later(max(0, deadline_ms - self._world.clock.mono_ms()), self._look)

    def _look(self) -> None:
        """The timer's call: give up if an answer is overdue."""
        self._timer = None
        if not self._in_flight:
            return
        first = min(self._in_flight, key=lambda sent: sent.deadline_ms)
        if first.deadline_ms > self._world.clock.mono_ms():
            self._arm(first.deadline_ms)
            return
        self.close(RequestTimeout(f"{self.where} did not answer {first.api.name} within {first.timeout_ms} ms"))

    def _write(self, client_id: str | None, request: object, api: Api, version: int, correlation_id: int) -> None:
        assert self._transport is not None
        parts: Pieces = [b"", encode_request_header(api.key, version, correlation_id, client_id)]
        encoder(api.request, version)(request, parts)
        nbytes = sum(map(len, parts))
        parts[0] = nbytes.to_bytes(4, "big")
        if nbytes <= JOIN_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _answer(self, frame: Buffer, pos: int, end: int) -> None:
        if not self._in_flight:
            self.close(ChannelClosed(f"{self.where} answered something that was not asked"))
            return
        sent = self._in_flight.popleft()
        try:
            response = read_response(sent.api, sent.version, sent.correlation_id, frame, pos, end)
        except ProtocolError as error:
            failure = ChannelClosed(
                f"{self.where} answered {sent.api.name} v{sent.version} with what cannot be read: {error}"
            )
            sent.answered(None, failure)
            self.close(failure)
            return
        sent.answered(response, None)

    def _fail_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        in_flight, self._in_flight = self._in_flight, deque()
        for sent in in_flight:
            sent.answered(None, self.failure)
        if self.on_closed is not None:
            self.on_closed()


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
        """What the peer served when it was last connected to; empty before that."""
        return {} if self._protocol is None else self._protocol.versions

    async def request(self, request: object, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """The answer, or ChannelClosed, RequestTimeout, or KafkaError(UNSUPPORTED_VERSION) before anything is sent.

        `version` None: the highest that both sides have. The time is for connecting and for the answer, each.
        """
        protocol = self._protocol if self.is_open else await self._connect_within(timeout_ms)
        assert protocol is not None
        api = api_of(request)
        return await protocol.send(self.client_id, request, api, self._agree(protocol, api, version), timeout_ms)

    async def send_only(self, request: object, version: int | None = None) -> None:
        """Send a request that is never answered (Produce with acks=0)."""
        protocol = self._protocol if self.is_open else await self.connect()
        assert protocol is not None
        api = api_of(request)
        protocol.send_only(self.client_id, request, api, self._agree(protocol, api, version))

    async def versions(self) -> dict[int, tuple[int, int]]:
        """What the peer serves: API key to lowest and highest version."""
        protocol = self._protocol if self.is_open else await self.connect()
        assert protocol is not None
        return protocol.versions

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
        """The attempt goes on when this caller has no time left: a peer behind a cut cable takes CONNECT_TIMEOUT_MS."""
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
        """Gives its failure instead of raising it: it belongs to those who wait, not to the log of failed tasks."""
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
        except ChannelClosed as error:
            return error
        except LoginRefused as refused:
            return ChannelClosed(f"the login at {self.where} failed: {refused}")
        except OSError as error:
            return ChannelClosed(f"cannot connect to {self.where}: {error.strerror or error}")
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
            on_failed=lambda reason: protocol.close(ChannelClosed(f"the connection to {self.where}: {reason}")),
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
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
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
        lifetime_ms = await login.log_in(self.where, send, version)
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
    """The API of a request object."""
    key = info_of(type(request)).key
    assert key is not None, f"{request!r} is not a request"
    return APIS[ApiKey(key)]


def read_response(api: Api, version: int, correlation_id: int, frame: Buffer, pos: int, end: int) -> Any:
    flexible = response_header_version(api.key, version) == 1
    got, pos = decode_response_header(frame, pos, end, flexible)
    if got != correlation_id:
        raise ProtocolError(f"correlation id {got} where {correlation_id} is due")
    if api.key == ApiKey.API_VERSIONS and frame[pos : pos + 2] == UNSUPPORTED_VERSION_CODE:
        version = 0
    return decoder(api.response, version)(frame, pos, end)[0]


UNSUPPORTED_VERSION_CODE = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
