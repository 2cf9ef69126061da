"""One connection through the proxy: a client's side and a broker's side, whose frames go to a tap and on to the other side.

Only complete frames are passed on, because a response with addresses is rewritten. While one side does not accept bytes, the
other one is not read. After SaslHandshake v0 a login's tokens are frames without a header: they are passed on, but not to the
tap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast

from ottla.protocol.api import ApiKey, decode_request_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.primitives import Buffer, read_uvarint
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.frames import Buffer as FrameBuffer
from ottla.server.network.frames import FrameProtocol, ReceiveBuffer, read_size
from ottla.server.network.listener import LINGER_MS
from ottla.traffic.addresses import AddressedResponse, addressed_response, bounded_versions, has_addresses
from ottla.traffic.entries import Opened
from ottla.traffic.messages import CORRELATION_ID, REQUEST_START, api_of_key

#: A broker takes frames of 100 MiB by default (socket.request.max.bytes), and a client's fetch.max.bytes is 50 MiB; some users
#: have raised these.
FRAME_BYTES_MAX = 512 * 1024 * 1024
#: The most requests of one connection that wait for a response. Beyond it the oldest is forgotten: its response passes
#: unchanged. Brokers read far fewer ahead.
IN_FLIGHT_MAX = 100_000
#: A connection without a frame for this long is closed, as by the default of connections.max.idle.ms. With a request in flight
#: it is not.
IDLE_MS_MAX = 600_000
#: This stands for the API key of a token, which has none.
TOKEN = -1


class Tap(Protocol):
    """A receiver of the traffic. It is called after a frame has been passed on, so that no client waits for it."""

    def opened(self, connection: int, ends: Opened) -> None: ...
    def closed(self, connection: int) -> None: ...
    def request(self, connection: int, api_key: int, version: int, correlation_id: int, frame: Buffer) -> None: ...
    def response(self, connection: int, api_key: int, version: int, correlation_id: int, frame: Buffer) -> None: ...


class InFlight(NamedTuple):
    """A request that waits for its response."""

    correlation_id: int
    api_key: int
    version: int


class BrokerPlaces(Protocol):
    """The replacement of the brokers' addresses by the proxy's."""

    def rewritten(self, response: AddressedResponse, frame: Buffer) -> bytes | None:
        """Return the response with the proxy's addresses, or None if a broker has none yet."""

    def make(self, response: AddressedResponse, then: Callable[[], object]) -> None:
        """Give each broker of the response an address, and call `then`."""


class RelaySide(FrameProtocol):
    """One end of a relayed connection."""

    __slots__ = ("_is_waiting", "_transport", "after", "clock", "is_full", "is_gone", "on_closed", "other", "take")

    def __init__(self, inbox: ReceiveBuffer, clock: Clock) -> None:
        super().__init__(inbox)
        self.clock = clock
        self._transport: asyncio.Transport | None = None
        self._is_waiting = False
        self.is_gone = False
        #: The peer does not accept more bytes.
        self.is_full = False
        self.other: RelaySide | None = None
        #: Takes a frame between two positions, without its length. The result is passed on to the other side. None: there is no
        #: other side yet.
        self.take: Callable[[FrameBuffer, int, int], Buffer | None] | None = None
        #: Calls that are made after the frames of this read have been passed on, so that no client waits for them.
        self.after: list[Callable[[], object]] = []
        self.on_closed: Callable[[], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self._transport = None
        self.drop_received()
        if self.other is not None:
            self.other.close()
        if self.on_closed is not None:
            self.on_closed()

    def eof_received(self) -> bool:
        return False

    def close(self) -> None:
        """Close after the written bytes have been sent. A peer that does not read them is waited for as long as at a node."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self.clock.call_later(LINGER_MS, self.abort)
        self.is_gone = True

    def abort(self) -> None:
        self.is_gone = True
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_gone:
            self._transport.write(data)

    def pause_writing(self) -> None:
        self.is_full = True
        if self.other is not None:
            self.other.wait()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.other is not None:
            self.other.go_on()

    def wait(self) -> None:
        """Stop reading until `go_on`."""
        self._is_waiting = True
        if self._transport is not None and not self.is_gone:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Continue with the kept bytes and then read on, but not within this call."""
        if self._is_waiting:
            self._is_waiting = False
            self.clock.call_later(0, self._serve_on)

    def wait_for_memory(self) -> None:
        self.wait()

    def has_memory(self) -> None:
        self.go_on()

    def _serve_on(self) -> None:
        if not self.is_gone:
            self.serve_kept()
            if not self._is_waiting and not self.is_gone and self._transport is not None:
                self._transport.resume_reading()

    def serve(self, buf: FrameBuffer, pos: int, end: int) -> int:
        if self.other is not None and self.other.is_full:
            self.wait()
            return pos
        out: list[Buffer] = []
        while end - pos >= 4 and not self._is_waiting and not self.is_gone:
            (size,) = read_size(buf, pos)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self.abort()  # the length is implausible: this peer does not speak Kafka's protocol
                return end
            stop = pos + 4 + size
            if stop > end:
                break
            assert self.take is not None, "a side that has no other waits"
            frame = self.take(buf, pos + 4, stop)
            if frame is None:
                self.wait()
                break
            out += (len(frame).to_bytes(4, "big"), frame)
            pos = stop
        if out and self.other is not None:
            self.other.write(b"".join(out))
        after, self.after = self.after, []
        for call in after:
            call()
        return end if self.is_gone else pos


class Relay:
    """The two sides of one connection, and its requests in flight."""

    def __init__(self, number: int, client: RelaySide, broker: RelaySide, tap: Tap, places: BrokerPlaces) -> None:
        self.number = number
        self.client = client
        self.broker = broker
        self._tap = tap
        self._places = places
        self._in_flight: deque[InFlight] = deque()
        self._may_have_tokens = False
        self._has_closed = False
        self._clock = client.clock
        self._active_ms = self._clock.mono_ms()
        self._idle: TimerHandle | None = None
        self.on_over: Callable[[], object] | None = None

    def begin(self, ends: Opened) -> None:
        """Pass frames on from now on."""
        self._tap.opened(self.number, ends)
        client, broker = self.client, self.broker
        client.other, broker.other = broker, client
        client.on_closed = broker.on_closed = self.close
        client.take, broker.take = self._request, self._response
        if client.is_gone or broker.is_gone:
            self.close()
        else:
            self._idle = self._clock.call_later(IDLE_MS_MAX, self._look)
        client.go_on()
        broker.go_on()

    def close(self) -> None:
        if not self._has_closed:
            self._has_closed = True
            self._tap.closed(self.number)
            if self._idle is not None:
                self._idle.cancel()
            if self.on_over is not None:
                self.on_over()
        self.client.close()
        self.broker.close()

    def _look(self) -> None:
        """Close the connection if it is idle, or check again when it may be. A peer that does not read is not waited for."""
        left_ms = self._active_ms + IDLE_MS_MAX - self._clock.mono_ms()
        is_waiting = self._in_flight and not self.client.is_full and not self.broker.is_full
        if left_ms <= 0 and not is_waiting:
            self.close()
        else:
            self._idle = self._clock.call_later(left_ms if left_ms > 0 else IDLE_MS_MAX, self._look)

    def _request(self, buf: FrameBuffer, pos: int, end: int) -> Buffer | None:
        frame = memoryview(buf)[pos:end]
        self._active_ms = self._clock.mono_ms()
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            self._in_flight.popleft()
        if len(frame) < REQUEST_START.size:
            self._in_flight.append(InFlight(0, TOKEN, 0))
            return bytes(frame)
        api_key, version, correlation_id = REQUEST_START.unpack_from(frame)
        if self._may_have_tokens and api_of_key(api_key, version) is None:
            self._in_flight.append(InFlight(0, TOKEN, 0))
            return bytes(frame)
        self._may_have_tokens = api_key == ApiKey.SASL_HANDSHAKE and version == 0
        if not (api_key == ApiKey.PRODUCE and _is_unanswered(frame)):
            self._in_flight.append(InFlight(correlation_id, api_key, version))
        passed = bytes(frame)
        self.client.after.append(
            partial(self._tap.request, self.number, api_key, version, correlation_id, memoryview(passed))
        )
        return passed

    def _response(self, buf: FrameBuffer, pos: int, end: int) -> Buffer | None:
        frame = memoryview(buf)[pos:end]
        self._active_ms = self._clock.mono_ms()
        if not self._in_flight or len(frame) < CORRELATION_ID.size or self._in_flight[0].api_key == TOKEN:
            if self._in_flight:
                self._in_flight.popleft()
            return bytes(frame)
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        asked = self._asked(correlation_id)
        if asked is None:
            return bytes(frame)
        recorded = bytes(frame)
        passed: Buffer | None = recorded
        if has_addresses(asked.api_key, asked.version):
            found = addressed_response(asked.api_key, asked.version, frame)
            if found is not None:
                passed = self._places.rewritten(found, frame)
                if passed is None:
                    self._places.make(found, self.broker.go_on)
                    return None
        elif asked.api_key == ApiKey.API_VERSIONS:
            passed = bytes(bounded_versions(asked.version, frame))
        while self._in_flight.popleft() is not asked:
            pass  # the broker has not answered these
        self.broker.after.append(
            partial(self._tap.response, self.number, asked.api_key, asked.version, correlation_id, memoryview(recorded))
        )
        return passed

    def _asked(self, correlation_id: int) -> InFlight | None:
        """Return the request that a response belongs to. Requests before it count as unanswered."""
        return next((each for each in self._in_flight if each.correlation_id == correlation_id), None)


def _is_unanswered(frame: Buffer) -> bool:
    """Return whether a Produce has acks=0."""
    try:
        _, version, _, _, pos = decode_request_header(frame, 0, len(frame))
        if version >= 9:
            length, pos = read_uvarint(frame, pos)
            pos += max(0, length - 1)
        else:
            pos += 2 + max(0, int.from_bytes(frame[pos : pos + 2], "big", signed=True))
        return bytes(frame[pos : pos + 2]) == b"\0\0"
    except (ProtocolError, IndexError):
        return False
