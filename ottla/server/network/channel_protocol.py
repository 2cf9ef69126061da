"""One connection to a peer: requests are pipelined, and responses come in their order. client.py makes the connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, NamedTuple, TypeVar, cast

from ottla.protocol.api import Api
from ottla.protocol.primitives import Pieces
from ottla.server.clock import TimerHandle
from ottla.server.network.frames import LARGE_FRAME_BYTES, Buffer, FrameProtocol, ReceiveBuffer, read_size
from ottla.server.network.wire import (
    RESPONSE_BYTES_MAX,
    AnotherProtocol,
    Ask,
    ChannelClosed,
    ClientWire,
    RequestLost,
    RequestTimeout,
    Steps,
    UnreadableResponse,
    Work,
)
from ottla.server.transport import write_pieces
from ottla.server.world import World

T = TypeVar("T")

pack_start = Struct(">ihhi").pack


#: With these errors, a request in flight fails as it is. Other losses of its connection become `RequestLost`.
KEPT = (RequestTimeout, AnotherProtocol)
#: It is called once, with the response, or with why there is none.
Answered = Callable[[Any, ChannelClosed | None], None]
#: Reads the usual form of a response: (correlation id, frame, position, end). It returns None for any other form, which the
#: decoder reads. Its result may refer to the frame's memory, which is used again after `answered` has returned.
Read = Callable[[int, Buffer, int, int], Any]


class Waiter(NamedTuple):
    """The receiver of a response, and its deadline."""

    answered: Answered
    timeout_ms: int
    deadline_ms: int
    read: Read | None


class ChannelProtocol(FrameProtocol):
    """One connection of a channel. Responses own their memory, so their records may be kept, except those from a `Read`."""

    __slots__ = (
        "_in_flight", "_timer", "_timer_ms", "_transport", "_world", "closed", "failure", "on_closed", "wire",
    )  # fmt: skip

    def __init__(self, world: World, where: str) -> None:
        super().__init__(ReceiveBuffer(2 * LARGE_FRAME_BYTES, pooled=0))
        self._world = world
        self._transport: asyncio.Transport | None = None
        self.wire: ClientWire[Waiter] = ClientWire(where)
        self._in_flight = self.wire.in_flight
        #: One timer for all requests in flight. A response does not change it: when it fires, which is rare, it checks the
        #: deadlines.
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self.closed = False
        self.failure: ChannelClosed | None = None
        #: It is called when no more responses can come.
        self.on_closed: Callable[[], object] | None = None

    def send(
        self, client_id: str | None, request: object, api: Api, version: int, timeout_ms: int
    ) -> asyncio.Future[Any]:
        """Send now. The future gets the response."""
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
        """Send now. `answered` is called in the same turn of the loop in which the response arrives.

        Raises:
            UnsupportedVersion: the version cannot hold the request. Nothing was sent, and no response is awaited.
        """
        pieces = self.wire.request(client_id, request, api, version, self._waiter(timeout_ms, answered))
        self._write(pieces)

    def call_encoded(
        self, request: bytes, api: Api, version: int, timeout_ms: int, answered: Answered, read: Read
    ) -> None:
        """Send as `call` does, with a request that is already encoded from its client id on."""
        assert self._transport is not None
        correlation_id = self.wire.sent(api, version, self._waiter(timeout_ms, answered, read))
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
            self.failure = ChannelClosed(f"the connection to {self.wire.where} was closed{why}")
        self._fail_all()

    def serve(self, buf: Buffer, pos: int, end: int) -> int:
        while end - pos >= 4:
            (size,) = read_size(buf, pos)
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                self.close(self.wire.another_protocol(bytes(buf[pos : min(end, pos + 16)]), size))
                return end
            stop = pos + 4 + size
            if stop > end:
                break
            self._answer(buf, pos + 4, stop)
            if self.closed:
                return end
            pos = stop
        return pos

    def _waiter(self, timeout_ms: int, answered: Answered, read: Read | None = None) -> Waiter:
        if self.failure is not None:
            raise self.failure
        deadline_ms = self._world.clock.mono_ms() + timeout_ms
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(deadline_ms)
        return tuple.__new__(Waiter, (answered, timeout_ms, deadline_ms, read))

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._world.clock.call_later(max(0, deadline_ms - self._world.clock.mono_ms()), self._look)

    def _look(self) -> None:
        """Fail the channel if a response is overdue, when the timer fires."""
        self._timer = None
        if not self._in_flight:
            return
        first = min(self._in_flight, key=lambda sent: sent.waiter.deadline_ms)
        if first.waiter.deadline_ms > self._world.clock.mono_ms():
            self._arm(first.waiter.deadline_ms)
            return
        within = f"within {first.waiter.timeout_ms} ms"
        self.close(RequestTimeout(f"{self.wire.where} did not answer {first.api.name} {within}"))

    def _write(self, pieces: Pieces) -> None:
        assert self._transport is not None
        write_pieces(self._transport, pieces, sum(map(len, pieces)))

    def _answer(self, frame: Buffer, pos: int, end: int) -> None:
        try:
            sent = self.wire.answered()
        except ChannelClosed as failure:
            self.close(failure)
            return
        answered, read = sent.waiter.answered, sent.waiter.read
        if read is not None:
            response = read(sent.correlation_id, frame, pos, end)
            if response is not None:
                answered(response, None)
                return
        if frame is self._inbox.data:
            # The next read will overwrite the receive buffer, but the caller reads the response later: it gets a copy.
            frame, pos, end = bytes(memoryview(frame)[pos:end]), 0, end - pos
        try:
            response = self.wire.response(sent, frame, pos, end)
        except UnreadableResponse as failure:
            answered(None, failure)
            self.close(failure)
            return
        answered(response, None)

    def _fail_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        in_flight = list(self._in_flight)
        self._in_flight.clear()
        for sent in in_flight:
            sent.waiter.answered(None, self.failure)
        if self.on_closed is not None:
            self.on_closed()


async def carried_out(
    steps: Steps[T], send: Callable[[Ask], Awaitable[Any]], work: Callable[[Work], Awaitable[Any]] | None = None
) -> T:
    """Return the result of the steps.

    `send` returns a request's response; `work` returns the result of a worker, if a step needs one.

    Raises:
        ChannelClosed: the connection was lost, or is useless.
        LoginRejected: raised by the steps of a login.
    """
    done: Any = None
    while True:
        try:
            step = steps.send(done)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Ask):
            done = await send(step)
        else:
            assert work is not None, "these steps only ask"
            done = await work(step)
