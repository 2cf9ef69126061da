"""One client's connection: it cuts frames, keeps replies in order, writes once per wake-up, and bounds what a client can use.

requests      take effect in the order they arrive
replies       leave in that order; one that waits (acks=all, long poll) holds later replies back, not later requests
reading       pauses while the client does not read its replies, while too many replies wait for their turn, and while an `async
              def` handler works; what has arrived by then is kept and served afterwards
bad frames    close this connection and no other, with one line in the log (what is in a frame: `dispatch.py`)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.context import (
    ANSWERED,
    Acceptor,
    FastPath,
    Renewable,
    RequestContext,
    Requests,
)
from ottla.server.network.frames import Buffer, FrameProtocol, read_size
from ottla.server.network.limits import OTHER_REQUEST_BYTES_MAX, describe_foreign_bytes, why_too_large
from ottla.server.network.pauses import SLOW_NS, Pause, Reason
from ottla.server.network.replies import Replies
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.tasks import isolated
from ottla.server.transport import plain_address

log = logging.getLogger(__name__)

#: Write buffer limits: asyncio calls `pause_writing` above the first and `resume_writing` below the second. A client that never
#: reads can take this much memory and one reply more; the records of a Fetch reply are views of files, and take none.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1024 * 1024, 256 * 1024


class Connection(Replies):
    """The connection of one client. A `Listener` makes it."""

    __slots__ = (
        "_close_callbacks", "_dispatcher", "_has_missed", "_muted", "_muted_until_ns", "_paused", "_pauses", "client_id", "client_id_bytes",
        "client_software_name", "client_software_version", "contexts", "fast_path", "idle_slot", "index", "listener", "local_host",
        "local_port", "login", "opened_ns", "peer_host", "peer_port", "principal", "request_bytes_max", "stamp_ns",
    )  # fmt: skip

    def __init__(self, listener: Acceptor[Connection], dispatcher: Requests[Connection], index: int) -> None:
        super().__init__(listener.inbox)
        self.listener = self.sent_by = listener
        self.index = index
        self._dispatcher = dispatcher
        self._paused = self._pauses = self._muted_until_ns = 0
        #: Whether the first request of the present read has already gone to the fast path.
        self._has_missed = False
        self._muted: TimerHandle | None = None
        self._close_callbacks: list[Callable[[], None]] = []
        self.principal: Principal = ANONYMOUS
        self.login: Renewable | None = None
        self.request_bytes_max = listener.limits.request_bytes_max
        self.client_id: str | None = None
        self.client_id_bytes = b""
        self.client_software_name = self.client_software_version = "unknown"
        self.contexts: dict[int, RequestContext] = {}
        self.fast_path: FastPath[Connection] | None = None
        #: The beginning of the last read, or the end of a request in it: it is the time at which the present request begins.
        self.opened_ns = self.stamp_ns = dispatcher.mono_ns()
        self.idle_slot = -1
        self.peer_host, self.peer_port = self.local_host, self.local_port = "", 0

    # -- For handlers

    @property
    def id(self) -> str:
        """The connection's id in Kafka's form: local address, peer address, and a number in case the same ports are used again."""
        return f"{self.local_host}:{self.local_port}-{self.peer_host}:{self.peer_port}-{self.index}"

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def is_known(self) -> bool:
        """Return True once the client has logged in, or has sent a request if no login is needed."""
        return bool(self.contexts) if self.login is None else self.login.has_succeeded

    @property
    def is_counted(self) -> bool:
        """Return whether frames count in the clients' memory. Without a login they do not: its limits bound them."""
        return self.login is None or self.login.has_succeeded

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""
        self._close_callbacks.append(callback)

    def pause(self) -> Pause:
        """Serve no further request until this pause and all others have ended: the pause's request takes effect first."""
        self._pauses += 1
        self._stop(Reason.WORK)
        return Pause(self)

    def pause_ended(self) -> None:
        """Go on after a pause. Only `Pause.end` calls this."""
        self._pauses -= 1
        if not self._pauses:
            self._go_on(Reason.WORK)

    def dispatch_to(self, requests: Requests[Connection], request_bytes_max: int) -> None:
        """Send the next frames to another receiver: to the login, or to the dispatcher after authentication."""
        self._dispatcher = requests
        self.fast_path = None
        self.request_bytes_max = request_bytes_max

    def close(self, reason: str) -> None:
        """Send the completed responses, then close. Further requests are not served."""
        if self.closed:
            return
        log.info("[%s] Closing connection %s: %s", self.listener.name, self.id, reason)
        self.shut()

    def end(self, reason: str) -> None:
        """Send the completed responses and the end of the stream.

        Then the client closes; otherwise the node aborts the connection when it has stopped.

        If a socket is closed with unread requests, it resets the connection, and clients log that as an error.
        """
        if self.closed or self._paused & Reason.WRITING or not self.transport.can_write_eof():
            self.close(reason)
            return
        log.info("[%s] Closing connection %s: %s", self.listener.name, self.id, reason)
        self.flush()
        if not self._paused:
            self.transport.pause_reading()
        self.closed = True
        self.transport.write_eof()

    def refuse(self, reason: str) -> None:
        """Close because of what the client sent."""
        if self.closed:
            return
        self.listener.refuse(self.id, reason)
        self.shut()

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this can be a cast only.
        self.transport = cast(asyncio.Transport, transport)
        self.peer_host, self.peer_port = plain_address(transport.get_extra_info("peername"))
        self.local_host, self.local_port = plain_address(transport.get_extra_info("sockname"))
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        if self.listener.is_too_fast(self):
            self.closed = True
            self.transport.pause_reading()
            return
        if not self.listener.admit(self):
            self.closed = True
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.drop_received()
        self.contexts.clear()  # they refer to the connection
        self.fast_path = None
        if self._muted is not None:
            self._muted.cancel()
        self.listener.forget(self)
        callbacks, self._close_callbacks = self._close_callbacks, []
        callbacks += [reply.cancel for reply in self.drop_replies()]
        for callback in callbacks:
            isolated(callback)

    def eof_received(self) -> None:
        """Return None: the transport closes itself after the written bytes."""

    def pause_writing(self) -> None:
        self.listener.unread += 1
        self._stop(Reason.WRITING)

    def resume_writing(self) -> None:
        self._go_on(Reason.WRITING)

    def expire(self) -> None:
        """Close a connection that is idle, or whose close takes too long. The timer wheel calls this."""
        if self.closed:
            self.transport.abort()
        else:
            self.listener.idle_expired(self)

    # Requests

    def buffer_updated(self, nbytes: int) -> None:
        dispatcher, fast_path = self._dispatcher, self.fast_path
        self.stamp_ns = began_ns = dispatcher.mono_ns()
        self.listener.bytes_in += nbytes
        if fast_path is not None and not self._kept and not self._paused and dispatcher.turn.left_ns > 0:
            # In its steady state a client sends one request in a read, which repeats an earlier one: its response is sent at
            # once.
            if served := fast_path.serve(self, self._inbox.data, 0, nbytes):
                spent_ns = dispatcher.mono_ns() - began_ns
                if served == ANSWERED:
                    fast_path.route.count(spent_ns)
                if spent_ns > SLOW_NS:
                    dispatcher.turn.spend(spent_ns)
                return
            self._has_missed = read_size(self._inbox.data, 0)[0] == nbytes - 4
        self.is_serving = True
        try:
            if not (self._kept or self._paused):
                inbox = self._inbox.data
                pos = self.serve(inbox, 0, nbytes)
                if pos != nbytes:
                    self._keep(inbox, pos, nbytes)
                self.served()
            else:
                FrameProtocol.buffer_updated(self, nbytes)
        finally:
            self.is_serving = False

    def serve(self, buf: Buffer, pos: int, end: int) -> int:
        dispatcher = self._dispatcher
        dispatch, turn = dispatcher.dispatch, dispatcher.turn
        limit = self.request_bytes_max
        began_ns, left_ns = self.stamp_ns, turn.left_ns
        if left_ns <= 0 and not self._paused & Reason.TURN:
            self._wait_for_turn()
        while end - pos >= 4 and not self._paused:
            (size,) = read_size(buf, pos)
            if not 0 <= size <= limit:
                self.refuse(describe_foreign_bytes(bytes(buf[pos : min(end, pos + 16)]), size, limit))
                return end
            stop = pos + 4 + size
            if stop > end:
                if size > OTHER_REQUEST_BYTES_MAX and (reason := why_too_large(buf[pos + 4 : end], size)):
                    self.refuse(reason)
                    return end
                break
            fast_path = self.fast_path
            if fast_path is None or self._has_missed or not (served := fast_path.serve(self, buf, pos, stop)):
                dispatch(self, buf, pos + 4, stop)
            else:
                now_ns = dispatcher.mono_ns()
                if served == ANSWERED:
                    fast_path.route.count(now_ns - self.stamp_ns)
                self.stamp_ns = now_ns
            self._has_missed = False
            pos = stop
            if self.closed:
                break
            # Usually a read has one request: then there is nothing to check.
            if pos < end:
                # After a login has begun or ended, the next frame is for the new receiver.
                if self._dispatcher is not dispatcher:
                    dispatcher, limit = self._dispatcher, self.request_bytes_max
                    dispatch = dispatcher.dispatch
                if self.stamp_ns - began_ns > left_ns:
                    self._wait_for_turn()
        if (spent_ns := self.stamp_ns - began_ns) > SLOW_NS:
            turn.spend(spent_ns)
        return end if self.closed else pos

    def _wait_for_turn(self) -> None:
        self._stop(Reason.TURN)
        self._dispatcher.turn.wait(self.next_turn)

    def wait_for_memory(self) -> None:
        self._stop(Reason.MEMORY)

    def has_memory(self) -> None:
        if not self._paused & Reason.TURN:
            self._wait_for_turn()
        self._go_on(Reason.MEMORY)

    def next_turn(self) -> None:
        self._go_on(Reason.TURN)

    def served(self) -> None:
        self.flush()

    def _stop(self, reason: int) -> None:
        """Stop reading and serving until each reason for it has been removed."""
        if not self._paused and not self.closed:
            self.transport.pause_reading()
        self._paused |= reason

    def _go_on(self, reason: int) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        # While the connection is being served, the loop in `serve` continues by itself; only reading has to be started again.
        if self._paused or self.closed:
            return
        if not self.is_serving:
            self.is_serving = True
            self.stamp_ns = self._dispatcher.mono_ns()
            try:
                self.serve_kept()
            finally:
                self.is_serving = False
        if not self._paused and not self.closed:
            self.transport.resume_reading()

    def mute(self, wait_ms: int, clock: Clock) -> None:
        """Read nothing for this long, after the written responses (KIP-219)."""
        until_ns = clock.mono_ns() + wait_ms * 1_000_000
        if self.closed or until_ns <= self._muted_until_ns:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted_until_ns = until_ns
        self._muted = clock.call_later(wait_ms, partial(self._go_on, Reason.THROTTLED))
        self._stop(Reason.THROTTLED)

    def hold_back(self) -> None:
        self.listener.held_up += not self._paused & Reason.HELD
        self._stop(Reason.HELD)

    def end_hold(self) -> None:
        self._go_on(Reason.HELD)

    def shut(self) -> None:
        """Close without a log line; the caller has written one."""
        self.flush()
        self.closed = True
        if self._paused & Reason.WRITING:
            # The client does not read, so it could take for ever until it has read the rest.
            self.transport.abort()
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.listener.linger(self)
