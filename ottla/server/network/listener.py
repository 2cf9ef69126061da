"""Listeners: the endpoints at which clients connect, with their limits.

A node has several listeners, each with its own name, address and security protocol. broker/metadata_cache.py decides which
address clients get in responses.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ottla.protocol.work import Work
from ottla.server.clock import TimerWheel, run_in_turns
from ottla.server.config.listeners import Endpoint
from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.handshakes import Handshakes
from ottla.server.network.limits import BoundedLines, ConnectionLimits
from ottla.server.network.tls_stream import TlsStream
from ottla.server.principal import Principal
from ottla.server.transport import Server
from ottla.server.world import World

log = logging.getLogger(__name__)

#: The time limit for a client to read its last responses before its connection is aborted.
LINGER_MS = 5_000
#: The time limit of a TLS handshake. In Kafka it is connections.max.idle.ms, ten minutes.
HANDSHAKE_MS_MAX = 30_000
#: The pause in accepting after a connection for which there was no descriptor.
NO_ROOM_S = 0.1
NS_PER_MS = 1_000_000
#: One turn of the loop closes this many connections: it takes about a millisecond.
CLOSED_PER_TURN = 100


@dataclass(slots=True)
class LoginCounts:
    """Kafka's counts of a listener, which are read at a scrape."""

    succeeded: int = 0
    failed: int = 0
    reauthenticated: int = 0
    reauthentication_failed: int = 0
    expired: int = 0


class Logins(Protocol):
    """The login of the connections of one listener with SASL."""

    @property
    def counts(self) -> LoginCounts: ...

    def begin(self, connection: Connection) -> None:
        """Let the connection dispatch to a login, from its first request on."""


class ServerTls(Protocol):
    """The server's side of TLS of one listener. The context is replaced together with certificates."""

    @property
    def context(self) -> ssl.SSLContext: ...
    @property
    def handshakes(self) -> Handshakes: ...

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client with this certificate (DER), which has been verified. ANONYMOUS for None.

        Raises:
            ValueError: the certificate cannot be read.
        """


class Listener:
    """Accepts connections for one endpoint."""

    def __init__(
        self,
        world: World,
        endpoint: Endpoint,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        inbox: ReceiveBuffer,
        wheel: TimerWheel,
        *,
        tls: ServerTls | None = None,
        inter_broker: bool = False,
        logins: Logins | None = None,
    ) -> None:
        """Take in `logins` the way in which clients authenticate, if the listener's protocol is SASL_PLAINTEXT or SASL_SSL."""
        self.name = endpoint.name
        self.endpoint = endpoint
        self.limits = limits
        self.inbox = inbox
        self.connections: dict[Connection, None] = {}
        # Plain ints count these; they are read at a scrape.
        self.accepted = 0
        self.rejected = 0
        self.throttled = 0
        self.refused = 0
        self.unread = 0
        self.held_up = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._world = world
        self._dispatcher = dispatcher
        self._wheel = wheel
        self._tls = tls
        self._inter_broker = inter_broker
        self.logins = logins
        self._own_limits = limits.of(self.name)
        self._server: Server | None = None
        self._lines = BoundedLines(world.clock, log)

    def refuse(self, connection_id: str, reason: str) -> None:
        """Count and log a connection that is closed because of its bytes."""
        self.refused += 1
        self._lines.warning("[%s] Closing connection %s: %s", self.name, connection_id, reason)

    @property
    def port(self) -> int:
        """The bound port. The configured one may be 0."""
        assert self._server is not None, "not started"
        return self._server.port

    async def bind(self) -> None:
        """Bind the port; the kernel refuses connections to it until `accept`."""
        endpoint = self.endpoint
        try:
            self._server = await self._world.network.listen(
                endpoint.host, endpoint.port, self._make_connection, self.limits.socket_options
            )
        except OSError as failure:
            where = f"{endpoint.name}://{endpoint.host}:{endpoint.port}"
            raise OSError(f"cannot listen on {where}: {failure.strerror or failure}") from failure

    async def accept(self) -> None:
        assert self._server is not None, "bound first"
        await self._server.begin()
        where = f"{self.endpoint.host or '0.0.0.0'}:{self.port}"
        addresses = ", ".join(self._server.addresses)
        log.info("Awaiting socket connections on %s. (%s) Bound: %s", where, self.name, addresses)

    async def stop(self) -> None:
        """Stop accepting, and end each open connection after its written bytes; `abort` follows when the node has stopped."""
        if self._server is not None:
            await self._server.close()
        for connection in list(self.connections):
            connection.end("the node is stopping")

    def abort(self) -> None:
        """Close what is still open without waiting for clients."""
        for connection in list(self.connections):
            connection.transport.abort()

    def _make_connection(self) -> Connection | TlsStream:
        self.accepted += 1
        now_ns = self._dispatcher.mono_ns()
        held_ms = self._own_limits.rate.opened(now_ns)
        if not self._inter_broker:
            held_ms = max(held_ms, self.limits.rate.opened(now_ns))
        if held_ms and self._server is not None:
            self._server.hold(held_ms / 1000)
        connection = Connection(self, self._dispatcher, self.accepted)
        if self.logins is not None:
            self.logins.begin(connection)
        if self._tls is None:
            return connection
        stream = TlsStream(
            connection,
            self._tls.context,
            self._world.clock,
            on_secured=partial(self._secured, connection),
            on_failed=connection.refuse,
            handshakes=self._tls.handshakes,
            turn=self._dispatcher.turn,
        )
        connection.woken_by(stream)
        return stream

    def _secured(self, connection: Connection, stream: TlsStream) -> None:
        """Take the principal from the certificate after the TLS handshake."""
        assert self._tls is not None
        if stream.asked_name is not None:
            # If no address is advertised, clients get this one in responses: certificates are for names.
            connection.local_host = stream.asked_name
        if self.logins is not None:
            return  # with SASL_SSL the principal comes from SASL
        try:
            connection.principal = self._tls.principal(stream.peer_certificate)
        except ValueError as error:
            connection.refuse(str(error))

    # The connection's side

    def is_too_fast(self, connection: Connection) -> bool:
        """Return True if the address has used up its connection_creation_rate. The close is delayed, to slow down reconnects."""
        wait_ms = self.limits.quotas.wait_ms(connection.peer_host, self._dispatcher.mono_ns() // NS_PER_MS)
        if not wait_ms:
            return False
        self.throttled += 1
        self._wheel.add(connection, wait_ms)
        return True

    def admit(self, connection: Connection) -> bool:
        """Count the connection, or return False for one that is above a limit."""
        refusal = self.limits.refusal(connection.peer_host, self._inter_broker, connection.opened_ns)
        if refusal is None and len(self.connections) >= self._own_limits.connections_max:
            refusal = f"{self.name} has {len(self.connections)} connections already (max.connections of the listener)"
        if refusal is not None:
            self.rejected += 1
            if self.limits.open_total >= self.limits.room and self._server is not None:
                self._server.hold(NO_ROOM_S)  # in this turn refused connections still have their descriptors
            self._lines.warning("[%s] Rejecting connection from %s: %s", self.name, connection.peer_host, refusal)
            return False
        self.limits.opened(connection.peer_host)
        self.limits.newcomers.add(connection)
        self.connections[connection] = None
        look_ms = self.limits.idle_ms_max
        if self._tls is not None:
            look_ms = HANDSHAKE_MS_MAX if look_ms < 0 else min(look_ms, HANDSHAKE_MS_MAX)
        if look_ms >= 0:
            connection.idle_slot = self._wheel.add(connection, look_ms)
        return True

    def forget(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.limits.closed(connection.peer_host)
        self.limits.newcomers.forget(connection)
        self._wheel.remove(connection, connection.idle_slot)

    def linger(self, connection: Connection) -> None:
        """Give the peer of a closing connection some time to read what has been written."""
        self._wheel.remove(connection, connection.idle_slot)
        connection.idle_slot = self._wheel.add(connection, LINGER_MS)

    def idle_expired(self, connection: Connection) -> None:
        """Handle the connection's expired entry in the wheel: close the connection, or set the entry to the next possible time."""
        stream = connection.transport
        if isinstance(stream, TlsStream) and not stream.is_secured:
            connection.refuse("SSL handshake failed: it was not complete in time")
            return
        limit_ms = self.limits.idle_ms_max
        if limit_ms < 0:
            return
        idle_ms = (self._dispatcher.mono_ns() - connection.stamp_ns) // NS_PER_MS
        if idle_ms < limit_ms or connection.is_waiting:
            connection.idle_slot = self._wheel.add(
                connection, max(1, limit_ms - idle_ms) if idle_ms < limit_ms else limit_ms
            )
            return
        connection.close(f"idle for {idle_ms} ms (connections.max.idle.ms)")


class ClientGate:
    """The gate of a broker's listeners: while it is closed, clients are disconnected, so that they look for another broker.

    Connections are accepted, and may introduce themselves (ApiVersions, SASL); their next request closes them. So a client that
    only checks whether this broker runs gets a response. Clients of every kind try the next address after a connection was
    closed, while an error code would make most of them ask the same broker again for the new leader.
    """

    def __init__(self, world: World, dispatcher: Dispatcher, listeners: Sequence[Listener]) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._listeners = listeners

    def close(self) -> None:
        self._dispatcher.serve_introductions_only()
        self._world.spawn(run_in_turns(self._world.clock, self._disconnecting()), "client-gate")

    def open(self) -> None:
        self._dispatcher.serve_all()

    def _disconnecting(self) -> Work[None]:
        connections = [each for listener in self._listeners for each in listener.connections]
        for count, connection in enumerate(connections, 1):
            if not connection.closed:
                connection.shut()
            if count % CLOSED_PER_TURN == 0:
                yield None
