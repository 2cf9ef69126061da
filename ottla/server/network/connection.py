"""One client's connection: cuts frames, keeps replies in order, writes once per wake-up, and bounds what a client can cost.

requests      take effect in the order they arrive
replies       leave in that order; one that waits (acks=all, long poll) holds later replies back, not later requests
reading       pauses while the client does not read its replies, while too many replies wait their turn, and while an
              `async def` handler works; what has arrived by then is kept and served afterwards
bad frames    close this connection and no other, with one line in the log (what is in a frame: `dispatch.py`)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from ottla.protocol.primitives import Pieces
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.context import Acceptor, FastPath, PendingResponse, Renewable, RequestContext, Requests
from ottla.server.network.frames import Buffer, FrameProtocol, read_size
from ottla.server.network.limits import OTHER_REQUEST_BYTES_MAX, describe_foreign_bytes, why_too_large
from ottla.server.network.pauses import HELD_BYTES_MAX, HELD_REPLIES_MAX, SLOW_NS, Pause, Reason
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.tasks import isolated
from ottla.server.transport import plain_address, write_pieces

log = logging.getLogger(__name__)

#: Write buffer limits: asyncio calls `pause_writing` above the first and `resume_writing` below the second. A client that
#: never reads can cost this and one reply more; the records of a Fetch reply are views of files and cost nothing.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1024 * 1024, 256 * 1024
#: Replies of one wake-up are written earlier when there are this many bytes of them.
FLUSH_BYTES = 256 * 1024


class Connection(FrameProtocol):
    """The connection of one client, which a `Listener` makes."""

    __slots__ = (
        "_close_callbacks", "_dispatcher", "_has_missed", "_held", "_held_bytes", "_muted", "_muted_until_ns", "_out", "_out_bytes", "_paused",
        "_pauses", "_serving", "client_id", "client_id_bytes", "client_software_name", "client_software_version", "closed", "contexts",
        "fast_path", "idle_slot", "index", "listener", "local_host", "local_port", "login", "opened_ns", "peer_host",
        "peer_port", "principal", "request_bytes_max", "stamp_ns", "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, listener: Acceptor[Connection], dispatcher: Requests[Connection], index: int) -> None:
        super().__init__(listener.inbox)
        self.listener = listener
        self.index = index
        self._dispatcher = dispatcher
        self._held: deque[PendingResponse] = deque()
        self._out: Pieces = []
        self._held_bytes = self._out_bytes = self._paused = self._pauses = self._muted_until_ns = 0
        #: Whether responses wait for those of the other requests in a read, and whether its first has come to the fast path already.
        self._serving = self._has_missed = self.closed = False
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
        #: The end of the last request, or the begin of one that is being served.
        self.opened_ns = self.stamp_ns = dispatcher.mono_ns()
        self.idle_slot = -1
        self.peer_host, self.peer_port = self.local_host, self.local_port = "", 0

    # -- For handlers

    @property
    def id(self) -> str:
        """Kafka's form: local address, peer address, and a number for ports that are used again."""
        return f"{self.local_host}:{self.local_port}-{self.peer_host}:{self.peer_port}-{self.index}"

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def is_known(self) -> bool:
        """Return True once the client has logged in or, where no login is needed, has sent a request."""
        return bool(self.contexts) if self.login is None else self.login.has_succeeded

    @property
    def is_counted(self) -> bool:
        """Peers without a login take nothing of the clients' memory: their frames are bounded by the login's limits of bytes and time."""
        return self.login is None or self.login.has_succeeded

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""
        self._close_callbacks.append(callback)

    def pause(self) -> Pause:
        """Serve no further request until this pause and all others have ended: the one at work takes effect first."""
        self._pauses += 1
        self._stop(Reason.WORK)
        return Pause(self)

    def pause_ended(self) -> None:
        """Go on after a pause. `Pause.end` alone calls this."""
        self._pauses -= 1
        if not self._pauses:
            self._go_on(Reason.WORK)

    def dispatch_to(self, requests: Requests[Connection], request_bytes_max: int) -> None:
        """Send the next frames to another receiver: the login, or the dispatcher after authentication."""
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
        """Send the completed responses and the end of the stream. The client closes; else the node aborts when it has stopped.

        A socket that is closed over unread requests resets the connection, which clients log as an error.
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
        self._out.clear()
        self.contexts.clear()  # they refer back to the connection
        self.fast_path = None
        if self._muted is not None:
            self._muted.cancel()
        self.listener.forget(self)
        held, self._held = self._held, deque()
        callbacks, self._close_callbacks = self._close_callbacks, []
        callbacks += [reply.cancel for reply in held if reply.parts is None]
        for callback in callbacks:
            isolated(callback)

    def eof_received(self) -> None:
        """Give None: the transport closes itself after what has been written."""

    def pause_writing(self) -> None:
        self.listener.unread += 1
        self._stop(Reason.WRITING)

    def resume_writing(self) -> None:
        self._go_on(Reason.WRITING)

    def expire(self) -> None:
        """End a connection that is idle, or whose close takes too long, as the timer wheel says."""
        if self.closed:
            self.transport.abort()
        else:
            self.listener.idle_expired(self)

    # Requests

    def buffer_updated(self, nbytes: int) -> None:
        dispatcher, fast_path, inbox = self._dispatcher, self.fast_path, self._inbox.data
        self.stamp_ns = began_ns = dispatcher.mono_ns()
        self.listener.bytes_in += nbytes
        is_begin = not (self._start or self._paused) and self._large is None
        if (
            fast_path is not None
            and is_begin
            and nbytes - 4 == read_size(inbox, 0)[0] <= self.request_bytes_max
            and dispatcher.turn.left_ns > 0
        ):
            # The usual read of a client in its steady state is one request, which repeats another: its response leaves at once.
            if fast_path.serve(self, inbox, 4, nbytes):
                if (spent_ns := self.stamp_ns - began_ns) > SLOW_NS:
                    dispatcher.turn.spend(spent_ns)
                return
            self._has_missed = True
        self._serving = True
        try:
            if is_begin:
                pos = self.serve(inbox, 0, nbytes)
                if pos != nbytes:
                    self._keep(inbox, pos, nbytes)
                self.served()
            else:
                FrameProtocol.buffer_updated(self, nbytes)
        finally:
            self._serving = False

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
            if fast_path is None or self._has_missed or not fast_path.serve(self, buf, pos + 4, stop):
                dispatch(self, buf, pos + 4, stop)
            self._has_missed = False
            pos = stop
            if self.closed:
                break
            # Usually one read is one request: nothing is left to ask about.
            if pos < end:
                # After a login has begun or ended, the next frame is the new receiver's.
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
        # While it is being served the loop in `serve` goes on by itself, except that reading has to start again.
        if self._paused or self.closed:
            return
        if not self._serving:
            self._serving = True
            self.stamp_ns = self._dispatcher.mono_ns()
            try:
                self.serve_kept()
            finally:
                self._serving = False
        if not self._paused and not self.closed:
            self.transport.resume_reading()

    def mute(self, wait_ms: int, clock: Clock) -> None:
        """Read nothing for this long, after what has been answered (KIP-219)."""
        until_ns = clock.mono_ns() + wait_ms * 1_000_000
        if self.closed or until_ns <= self._muted_until_ns:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted_until_ns = until_ns
        self._muted = clock.call_later(wait_ms, partial(self._go_on, Reason.THROTTLED))
        self._stop(Reason.THROTTLED)

    # Replies

    def reply(self, head: bytes, parts: Pieces, nbytes: int) -> None:
        """Send a frame when its turn comes. `nbytes` is that of head and parts."""
        if self._held:
            self._held.append(PendingResponse([head, *parts], nbytes))
            self._hold(nbytes)
            return
        if self._serving:
            self._out += (head, *parts)
            self._out_bytes += nbytes
            if self._out_bytes > FLUSH_BYTES:
                self.flush()
        elif not self.closed:
            self.listener.bytes_out += nbytes
            if parts:
                write_pieces(self.transport, [head, *parts], nbytes)
            else:
                self.transport.write(head)

    def wait(self, pending: PendingResponse, kept_bytes: int) -> None:
        """Keep the place of a reply that is not ready."""
        self._held.append(pending)
        self._hold(kept_bytes)

    def ready(self, pending: PendingResponse, kept_bytes: int) -> None:
        """A reply that waited has its parts now (or none, when nothing is to be sent)."""
        held = self._held
        if self.closed:
            return
        if held[0] is not pending:
            self._held_bytes += pending.nbytes - kept_bytes
            return
        self._held_bytes -= kept_bytes
        held.popleft()
        parts, nbytes = pending.parts, pending.nbytes
        if held or self._serving:
            while parts is not None:
                self._out += parts
                self._out_bytes += nbytes
                if not held or (parts := held[0].parts) is None:
                    break
                nbytes = held.popleft().nbytes
                self._held_bytes -= nbytes
            if not self._serving or self._out_bytes > FLUSH_BYTES:
                self.flush()
        elif parts:  # the usual one: no other request of this client waits
            self.listener.bytes_out += nbytes
            write_pieces(self.transport, parts, nbytes)
        if self._paused & Reason.HELD and len(held) < HELD_REPLIES_MAX // 2 and self._held_bytes <= HELD_BYTES_MAX // 2:
            self._go_on(Reason.HELD)

    def flush(self) -> None:
        """Hand the responses that are due to the transport."""
        out, nbytes = self._out, self._out_bytes
        if not out or self.closed:
            return
        self._out, self._out_bytes = [], 0
        self.listener.bytes_out += nbytes
        write_pieces(self.transport, out, nbytes)

    @property
    def is_waiting(self) -> bool:
        """Return True if a request has no response yet."""
        return bool(self._held)

    def _hold(self, nbytes: int) -> None:
        self._held_bytes += nbytes
        if len(self._held) > HELD_REPLIES_MAX or self._held_bytes > HELD_BYTES_MAX:
            self.listener.held_up += not self._paused & Reason.HELD
            self._stop(Reason.HELD)

    def shut(self) -> None:
        """Close without a line in the log, where the caller has written one."""
        self.flush()
        self.closed = True
        if self._paused & Reason.WRITING:
            # The client does not read, so waiting for it to read the rest could take for ever.
            self.transport.abort()
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.listener.linger(self)
