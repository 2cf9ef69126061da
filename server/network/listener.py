"""Listeners: where clients connect, and how many may.

A node has several listeners, each with its own name, address and security protocol. Which address clients are answered
with is said by broker/metadata_cache.py.
"""

from __future__ import annotations

import logging
import ssl as tls
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.server.network.connection import Connection
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.transport import Server
from ottla.server.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from ottla.server.world import World

log = logging.getLogger(__name__)

#: How long a client that is being closed may take to read its last replies.
LINGER_MS = 5_000
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One entry of `listeners`, with its entry of `advertised.listeners` if there is one."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"
    advertised_host: str | None = None
    advertised_port: int | None = None


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
        ssl: tls.SSLContext | None = None,
        inter_broker: bool = False,
    ) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self.limits = limits
        self.inbox = inbox
        self.connections: dict[Connection, None] = {}
        # Counted in plain ints, read at a scrape.
        self.accepted = 0
        self.rejected = 0
        self.throttled = 0
        self.refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._world = world
        self._dispatcher = dispatcher
        self._wheel = wheel
        self._ssl = ssl
        self._inter_broker = inter_broker
        self._own_limits = limits.of(self.name)
        self._server: Server | None = None

    @property
    def port(self) -> int:
        """The port that was bound; the configured one may be 0."""
        assert self._server is not None, "not started"
        return self._server.port

    async def start(self) -> None:
        await self.bind()
        await self.accept()

    async def bind(self) -> None:
        """Takes the port; whoever dials is refused until `accept`."""
        endpoint = self.endpoint
        try:
            self._server = await self._world.network.listen(
                endpoint.host, endpoint.port, self._make_connection, self._ssl, self.limits.socket_options
            )
        except OSError as failure:
            where = f"{endpoint.name}://{endpoint.host}:{endpoint.port}"
            raise OSError(f"cannot listen on {where}: {failure.strerror or failure}") from failure

    async def accept(self) -> None:
        assert self._server is not None, "bound first"
        await self._server.begin()
        log.info("Awaiting socket connections on %s:%d. (%s)", self.endpoint.host or "0.0.0.0", self.port, self.name)

    async def stop(self) -> None:
        """Accept no more, and close what is open after what has been written to it."""
        if self._server is not None:
            await self._server.close()
        for connection in list(self.connections):
            connection.close("the node is stopping")

    def abort(self) -> None:
        """Close what is still open without waiting for clients that do not read."""
        for connection in list(self.connections):
            connection.transport.abort()

    def _make_connection(self) -> Connection:
        self.accepted += 1
        now_ns = self._dispatcher.mono_ns()
        held_ms = self._own_limits.rate.opened(now_ns)
        if not self._inter_broker:
            held_ms = max(held_ms, self.limits.rate.opened(now_ns))
        if held_ms and self._server is not None:
            self._server.hold(held_ms / 1000)
        return Connection(self, self._dispatcher, self.accepted)

    # The connection's side

    def is_too_fast(self, connection: Connection) -> bool:
        """Whether its address has used up its connection_creation_rate: then it is closed later, so that its client does not come at once."""
        wait_ms = self.limits.quotas.wait_ms(connection.peer_host, self._dispatcher.mono_ns() // NS_PER_MS)
        if not wait_ms:
            return False
        self.throttled += 1
        self._wheel.add(connection, wait_ms)
        return True

    def admit(self, connection: Connection) -> str | None:
        """Count the connection in, or say why it may not stay."""
        refusal = self.limits.refusal(connection.peer_host, self._inter_broker)
        if refusal is None and len(self.connections) >= self._own_limits.connections_max:
            refusal = f"{self.name} has {len(self.connections)} connections already (max.connections of the listener)"
        if refusal is not None:
            self.rejected += 1
            return refusal
        self.limits.opened(connection.peer_host)
        self.connections[connection] = None
        if self.limits.idle_ms_max >= 0:
            connection.idle_slot = self._wheel.add(connection, self.limits.idle_ms_max)
        return None

    def forget(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.limits.closed(connection.peer_host)
        self._wheel.remove(connection, connection.idle_slot)

    def linger(self, connection: Connection) -> None:
        """Give a closing connection's peer some time to take what has been written."""
        self._wheel.remove(connection, connection.idle_slot)
        connection.idle_slot = self._wheel.add(connection, LINGER_MS)

    def idle_expired(self, connection: Connection) -> None:
        """The connection's entry in the wheel has come due: close it, or look again when it would be."""
        limit_ms = self.limits.idle_ms_max
        idle_ms = (self._dispatcher.mono_ns() - connection.last_active_ns) // NS_PER_MS
        if idle_ms < limit_ms or connection.is_waiting:
            connection.idle_slot = self._wheel.add(
                connection, max(1, limit_ms - idle_ms) if idle_ms < limit_ms else limit_ms
            )
            return
        connection.close(f"idle for {idle_ms} ms (connections.max.idle.ms)")
