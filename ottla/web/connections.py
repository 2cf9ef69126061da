"""The connections of an HTTP server: time limits for what a client sends and reads, and which connection is closed when there
are too many.

uvicorn waits without a limit for the first request, for the rest of a head or a body, for a TLS handshake, and for a client
that does not read its response. So a thousand silent sockets could take all connections. Here each connection has a phase, and
a check once a second closes the connections that have been in one phase for too long:

    handshake    of TLS                              HEAD_S
    head         no request yet, or a part of one    HEAD_S
    body         the head is there, the body is not  BODY_S
    idle         between two requests                uvicorn's timeout_keep_alive
    answer       as long as the application takes; but a client that reads nothing for UNREAD_S is disconnected
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

HEAD_S = 10.0
BODY_S = 30.0
UNREAD_S = 30.0
#: Bytes of responses that clients of all connections have not read. Above it, the connection with the most is closed.
UNREAD_BYTES_MAX = 64 * 1024 * 1024
#: The largest request line with its headers.
HEAD_BYTES_MAX = 16 * 1024
HANDSHAKE, HEAD, BODY, IDLE, ANSWER = "handshake", "head", "body", "idle", "answer"
LIMITS_S = {HANDSHAKE: HEAD_S, HEAD: HEAD_S, BODY: BODY_S}


class HttpConnections:
    """The connections of one server, at most `connections_max`."""

    def __init__(self, connections_max: int, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self._connections_max = connections_max
        self._all: set[HttpConnection] = set()

    def __len__(self) -> int:
        return len(self._all)

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> HttpConnection:
        """Return a new connection, in the way uvicorn makes its protocols."""
        return HttpConnection(self, config, server_state, app_state, _loop)

    def add(self, connection: HttpConnection) -> None:
        """Take a new connection.

        If there are too many, the one is closed that has waited longest without a complete request. A connection without any
        request so far is closed before one that is idle between two requests. If all have requests, uvicorn responds with 503.
        """
        if len(self._all) >= self._connections_max:
            waiting = [each for each in self._all if each.phase() != ANSWER]
            if waiting:
                min(waiting, key=lambda each: (each.was_answered, each.since_s)).abort()
        self._all.add(connection)

    def remove(self, connection: HttpConnection) -> None:
        self._all.discard(connection)

    def look(self, now_s: float) -> None:
        """Close the connections that have been in one phase for too long, or whose clients do not read."""
        unread = 0
        for each in list(self._all):
            if each.is_over(now_s):
                each.abort()
            else:
                unread += each.unread
        while unread > UNREAD_BYTES_MAX:
            most = max(self._all, key=lambda each: each.unread)
            unread -= most.unread
            most.abort()


class HttpConnection(H11Protocol):
    """A connection of uvicorn that knows its phase. A TLS handshake is a phase, too."""

    def __init__(
        self,
        connections: HttpConnections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._socket: asyncio.Transport | None = None
        self._shaking: asyncio.Task[None] | None = None
        self._early = b""
        self._seen: tuple[str, object] = (HEAD, None)
        self.since_s = time.monotonic()
        #: The bytes that the client had not read at the last check, the fewest since it stopped reading, and the time when it
        #: stopped.
        self.unread = 0
        self._unread_s = 0.0

    @property
    def was_answered(self) -> bool:
        return self.cycle is not None

    def phase(self) -> str:
        if self.flow is None:
            return HANDSHAKE
        if self.conn.their_state is h11.SEND_BODY:
            return BODY
        if self.conn.their_state is not h11.IDLE:
            return ANSWER
        return IDLE if self.was_answered and not self.conn.trailing_data[0] else HEAD

    def is_over(self, now_s: float) -> bool:
        """Return whether it has been in one phase for too long."""
        seen = (self.phase(), self.cycle)  # each request has another `cycle`
        if seen != self._seen:
            self._seen, self.since_s = seen, now_s
        limit_s = LIMITS_S.get(seen[0])
        return (limit_s is not None and now_s - self.since_s > limit_s) or self._reads_nothing(now_s)

    def _reads_nothing(self, now_s: float) -> bool:
        unread = 0 if self.flow is None else self.transport.get_write_buffer_size()
        if not unread or unread < self.unread or not self.unread:
            self._unread_s = now_s
        self.unread = unread
        return bool(unread) and now_s - self._unread_s > UNREAD_S

    def abort(self) -> None:
        """Close at once: `close` would wait for a client that does not read."""
        self._connections.remove(self)
        if self._shaking is not None:
            self._shaking.cancel()
        if self._socket is not None:
            self._socket.abort()
        if self.flow is not None:
            self.transport.abort()

    # -- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses of it
        self._connections.add(self)
        if self._connections.tls is None:
            super().connection_made(self._socket)
            return
        self._socket.pause_reading()
        self._shaking = self.loop.create_task(self._shake_hands(self._socket, self._connections.tls))

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            made = await self.loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=HEAD_S)
        except (OSError, asyncio.CancelledError) as fault:
            log.debug("no TLS: %r", fault)
            self.abort()
            return
        finally:
            self._shaking = None
        if made is None:
            self.abort()
            return
        super().connection_made(made)
        self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self.flow is None:  # the bytes came together with the end of the handshake, whose task has not run yet
            self._early += data
            return
        # h11 limits the length of an incomplete head only, so a head that came in one piece would have no limit.
        for at in range(0, len(data), HEAD_BYTES_MAX):
            if not self.transport.is_closing():
                super().data_received(data[at : at + HEAD_BYTES_MAX])

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        if self.flow is not None:
            super().connection_lost(exc)
