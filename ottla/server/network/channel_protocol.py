"""One connection to a peer: requests are pipelined, and answers come in their order. client.py connects, and connects again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, cast

from ottla.protocol.api import Api, ApiKey, decode_response_header, encode_request_header, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.primitives import Pieces
from ottla.server.clock import TimerHandle
from ottla.server.network.frames import LARGE_FRAME_BYTES, Buffer, FrameProtocol, ReceiveBuffer, read_size
from ottla.server.transport import write_pieces
from ottla.server.world import World

#: Up to this size the parts of a request are copied into one: cheaper than a system call with many parts.
JOIN_BYTES = 64 * 1024
#: A peer that announces more than this is not one: Fetch answers are bounded by the requests' own limits, far below.
RESPONSE_BYTES_MAX = 2**30
pack_start = Struct(">ihhi").pack
UNSUPPORTED_VERSION_CODE = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class ChannelClosed(ConnectionError):
    """The peer could not be reached, or the connection was lost before the answer came."""


class Unreachable(ChannelClosed):
    """The peer does not answer, and its host does not even refuse the connection."""


class RequestLost(ChannelClosed):
    """The connection was lost after the request had been sent: the peer may have carried it out, or may have ended by it."""


class HandshakeLost(ChannelClosed):
    """The peer closed the connection before it could be used, at ApiVersions or in the login: no request had been sent."""


class AnotherProtocol(ChannelClosed):
    """The peer does not speak Kafka's protocol."""


class SecurityRejected(ChannelClosed):
    """One side did not accept the other's TLS or login."""


class RequestTimeout(ChannelClosed):
    """The answer did not come in time. Answers come in order, so the connection was given up with it."""


#: What a request in flight fails with as it is; other losses of its connection become `RequestLost`.
KEPT = (RequestTimeout, AnotherProtocol)
#: Called once with the answer, or with why there is none.
Answered = Callable[[Any, ChannelClosed | None], None]
#: Reads the usual form of a response: (correlation id, frame, position, end); None for any other form, which its decoder reads.
Read = Callable[[int, Buffer, int, int], Any]


class InFlightRequest(NamedTuple):
    """A request that has been sent."""

    api: Api
    version: int
    correlation_id: int
    answered: Answered
    timeout_ms: int
    deadline_ms: int
    read: Read | None


class ChannelProtocol(FrameProtocol):
    """One connection of a channel. Answers own their memory: their records may be kept."""

    __slots__ = (
        "_in_flight", "_next_correlation_id", "_timer", "_timer_ms", "_transport", "_world", "closed", "failure", "on_closed", "versions", "where",
    )  # fmt: skip

    def __init__(self, world: World, where: str) -> None:
        super().__init__(ReceiveBuffer(2 * LARGE_FRAME_BYTES, pooled=0))
        self._world = world
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[InFlightRequest] = deque()
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
                    future.set_exception(failure if type(failure) in KEPT else RequestLost(*failure.args))

        self.call(client_id, request, api, version, timeout_ms, answered)
        return future

    def call(
        self, client_id: str | None, request: object, api: Api, version: int, timeout_ms: int, answered: Answered
    ) -> None:
        """Send now; `answered` is called in the very turn of the loop in which the answer arrives.

        Raises:
            UnsupportedVersion: the version cannot hold the request. Nothing was sent, and no answer is awaited.
        """
        parts = _encoded(request, api, version)
        correlation_id = self._register(api, version, timeout_ms, answered)
        self._write(client_id, parts, api, version, correlation_id)

    def call_encoded(
        self, request: bytes, api: Api, version: int, timeout_ms: int, answered: Answered, read: Read
    ) -> None:
        """Call like `call`, with a request that is encoded from its client id on."""
        assert self._transport is not None
        correlation_id = self._register(api, version, timeout_ms, answered, read)
        self._transport.write(pack_start(len(request) + 8, api.key, version, correlation_id) + request)

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
                what = describe_foreign_response(bytes(buf[pos : min(end, pos + 16)]), size)
                self.close(AnotherProtocol(f"{self.where} {what}"))
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

    def _register(self, api: Api, version: int, timeout_ms: int, answered: Answered, read: Read | None = None) -> int:
        if self.failure is not None:
            raise self.failure
        self._next_correlation_id = correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        deadline_ms = self._world.clock.mono_ms() + timeout_ms
        self._in_flight.append(InFlightRequest(api, version, correlation_id, answered, timeout_ms, deadline_ms, read))
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)
        return correlation_id

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.clock.call_later(max(0, deadline_ms - self._world.clock.mono_ms()), self._look)

    def _look(self) -> None:
        """Called by the timer: fails the channel if a response is overdue."""
        self._timer = None
        if not self._in_flight:
            return
        first = min(self._in_flight, key=lambda sent: sent.deadline_ms)
        if first.deadline_ms > self._world.clock.mono_ms():
            self._arm(first.deadline_ms)
            return
        self.close(RequestTimeout(f"{self.where} did not answer {first.api.name} within {first.timeout_ms} ms"))

    def _write(self, client_id: str | None, parts: Pieces, api: Api, version: int, correlation_id: int) -> None:
        assert self._transport is not None
        parts[1] = encode_request_header(api.key, version, correlation_id, client_id)
        nbytes = sum(map(len, parts))
        parts[0] = nbytes.to_bytes(4, "big")
        if nbytes <= JOIN_BYTES:
            self._transport.write(b"".join(parts))
        else:
            write_pieces(self._transport, parts)

    def _answer(self, frame: Buffer, pos: int, end: int) -> None:
        if not self._in_flight:
            self.close(ChannelClosed(f"{self.where} answered something that was not asked"))
            return
        sent = self._in_flight.popleft()
        if sent.read is not None:
            response = sent.read(sent.correlation_id, frame, pos, end)
            if response is not None:
                sent.answered(response, None)
                return
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


def _encoded(request: object, api: Api, version: int) -> Pieces:
    """Return the pieces of a request, with two empty ones for its length and its header before them."""
    parts: Pieces = [b"", b""]
    encoder(api.request, version)(request, parts)
    return parts


def read_response(api: Api, version: int, correlation_id: int, frame: Buffer, pos: int, end: int) -> Any:
    flexible = response_header_version(api.key, version) == 1
    got, pos = decode_response_header(frame, pos, end, flexible)
    if got != correlation_id:
        raise ProtocolError(f"correlation id {got} where {correlation_id} is due")
    if api.key == ApiKey.API_VERSIONS and frame[pos : pos + 2] == UNSUPPORTED_VERSION_CODE:
        version = 0
    return decoder(api.response, version)(frame, pos, end)[0]


def describe_foreign_response(first_bytes: bytes, size: int) -> str:
    """Return what a peer has done whose frame is larger than any response: web servers and proxies answer Kafka's requests with HTTP."""
    if first_bytes.startswith(b"HTTP/"):
        return "answered with HTTP, so it is no Kafka listener"
    return f"sent a frame of {size} bytes: is it a Kafka listener?"
