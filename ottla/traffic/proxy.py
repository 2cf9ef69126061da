"""The proxy: a listening port in place of each broker, and a relay for each connection.

The first port leads to the given address. Every other broker gets the next free port when a response first names it; that
response waits until the port is open.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ottla.protocol.primitives import Buffer
from ottla.server.address import PORT_MAX, Address
from ottla.server.clock import Clock, TimerHandle
from ottla.server.listening import WILDCARDS
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.handshakes import Handshakes
from ottla.server.network.listener import HANDSHAKE_MS_MAX
from ottla.server.network.pauses import RequestBytes
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.tls_stream import TlsStream
from ottla.server.network.wire import ChannelClosed
from ottla.server.transport import ProtocolFactory, Server, plain_address
from ottla.server.world import World
from ottla.traffic.addresses import AddressedResponse, AdvertisedBroker
from ottla.traffic.entries import Opened
from ottla.traffic.relay import Relay, RelaySide, Tap
from ottla.traffic.upstream import connect_to_broker

#: The most ports for brokers of one cluster: a response can name any number of brokers.
BROKERS_MAX = 1000
#: For one broker this many consecutive ports are tried, because other processes may have some of them.
PORT_TRIES_MAX = 100
#: The bytes of large frames of all connections that are being passed on.
FRAMES_BYTES_MAX = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The ends of a proxy.

    `tls` None means that clients connect without TLS. `advertised_host` None means the host that it listens at.
    """

    listen: Address
    to: Address
    security: PeerSecurity = PLAINTEXT
    tls: ssl.SSLContext | None = None
    advertised_host: str | None = None


class BrokerPort:
    """The port of one broker."""

    def __init__(self, to: Address, node_id: int) -> None:
        self.to = to
        self.node_id = node_id
        self.server: Server | None = None
        #: The address that clients connect to. A broker without a port here has its own address.
        self.address = to


class Proxy:
    """The ports and connections of one proxy. `note` is called with a sentence about a failure, once for each cause."""

    def __init__(self, world: World, options: ProxyOptions, tap: Tap, note: Callable[[str], object]) -> None:
        self._world = world
        self._options = options
        self._tap = tap
        self._note = note
        self._noted: set[str] = set()
        self._inbox = ReceiveBuffer(requests=RequestBytes(FRAMES_BYTES_MAX))
        self._handshakes = None if options.tls is None else Handshakes(world.workers, world.spawn)
        self._ways: dict[Address, BrokerPort] = {}
        self._making = asyncio.Lock()
        self._next_port = options.listen.port
        self._relays: set[Relay] = set()
        #: The number of connections with both sides since the start, and the number of clients' connections that hold
        #: descriptors now.
        self.connections = 0
        self._open = 0

    async def start(self) -> int:
        """Listen. Return the port for the first address.

        Raises:
            OSError: the port is in use, or this machine does not have the address.
        """
        way = BrokerPort(self._options.to, -1)
        await self._listen(way)
        self._ways[way.to] = way
        return way.address.port

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        for way in self._ways.values():
            if way.server is not None:
                await way.server.close()
        for relay in list(self._relays):
            relay.close()

    # -- Addresses ---------------------------------------------------------------------------------------------------

    def rewritten(self, response: AddressedResponse, frame: Buffer) -> bytes | None:
        """Return the response with the proxy's addresses, or None if a broker has none yet."""
        for address, node_id in response.advertised:
            way = self._ways.get(address)
            if way is None:
                if len(self._ways) < BROKERS_MAX:
                    return None
                self._say(f"more than {BROKERS_MAX} brokers: clients connect to the others past this proxy")
            elif node_id >= 0:
                way.node_id = node_id
        return response.rewritten(frame, {address: way.address for address, way in self._ways.items()})

    def make(self, response: AddressedResponse, then: Callable[[], object]) -> None:
        """Listen for the brokers of the response, and call `then`."""
        self._world.spawn(self._make(response.advertised, then), "listen for brokers")

    async def _make(self, advertised: list[AdvertisedBroker], then: Callable[[], object]) -> None:
        async with self._making:
            for address, node_id in advertised:
                if address not in self._ways and len(self._ways) < BROKERS_MAX:
                    way = BrokerPort(address, node_id)
                    try:
                        await self._listen(way)
                    except OSError as failure:
                        self._say(f"no port for broker {address}, clients connect to it past this proxy: {failure}")
                    self._ways[address] = way
        then()

    async def _listen(self, way: BrokerPort) -> None:
        """Listen on the next free port. Only the first address must have the requested port."""
        tries = PORT_TRIES_MAX if self._ways else 1
        host = self._options.listen.host
        for left in reversed(range(tries)):
            try:
                way.server = await self._world.network.listen(host, self._next_port, self._accepting(way))
                break
            except OSError as failure:
                if not left or failure.errno != errno.EADDRINUSE or self._next_port >= PORT_MAX:
                    raise
                self._next_port += 1
        assert way.server is not None
        await way.server.begin()
        if self._next_port:
            self._next_port += 1
        shown = self._options.advertised_host or ("localhost" if host in WILDCARDS else host)
        way.address = Address(shown, way.server.port)

    # -- Connections -------------------------------------------------------------------------------------------------

    def _accepting(self, way: BrokerPort) -> ProtocolFactory:
        def accepted() -> asyncio.BaseProtocol:
            client = _AcceptedSide(self._inbox, self._world.clock)
            client.on_made = lambda: self._admit(client)
            client.on_ready = lambda: self._world.spawn(self._join(way, client), "proxy connection")
            if self._options.tls is None or self._handshakes is None:
                return client
            client.is_encrypted = True
            return TlsStream(
                client,
                self._options.tls,
                self._world.clock,
                on_secured=lambda stream: client.ready(),
                on_failed=lambda reason: self._failed_tls(client, reason),
                handshakes=self._handshakes,
            )

        return accepted

    def _failed_tls(self, client: RelaySide, reason: str) -> None:
        self._say(f"a client's {reason}")
        client.abort()

    def _admit(self, client: _AcceptedSide) -> None:
        """Count the connection if there are descriptors for both of its sides.

        A TLS handshake has the same time limit as at a node.
        """
        if 2 * self._open >= self._world.network.room:
            self._say("there are no descriptors for more connections: `ulimit -n` bounds them")
            client.abort()
            return
        self._open += 1
        client.on_lost = self._lost
        if client.is_encrypted:
            late = "TLS handshake failed: it was not complete in time"
            client.expiry = self._world.clock.call_later(HANDSHAKE_MS_MAX, lambda: self._failed_tls(client, late))

    def _lost(self) -> None:
        self._open -= 1

    async def _join(self, way: BrokerPort, client: _AcceptedSide) -> None:
        try:
            broker = await connect_to_broker(self._world, way.to, self._options.security, self._inbox)
        except (ChannelClosed, OSError) as failure:
            self._say(f"no connection to broker {way.to.host} port {way.to.port}: {failure}")
            client.abort()
            return
        self.connections += 1
        relay = Relay(self.connections, client, broker, self._tap, self)
        self._relays.add(relay)
        relay.on_over = lambda: self._relays.discard(relay)
        relay.begin(Opened(client.peer, str(way.to), way.node_id))

    def _say(self, text: str) -> None:
        """Call `note` once for each cause."""
        cause = text.partition(":")[0]
        if cause not in self._noted and len(self._noted) < BROKERS_MAX:
            self._noted.add(cause)
            self._note(text)


class _AcceptedSide(RelaySide):
    """The accepted side. It does not read before the other side exists; a TLS handshake comes first."""

    __slots__ = ("expiry", "is_encrypted", "on_lost", "on_made", "on_ready", "peer")

    def __init__(self, inbox: ReceiveBuffer, clock: Clock) -> None:
        super().__init__(inbox, clock)
        self.is_encrypted = False
        #: The time limit of a TLS handshake.
        self.expiry: TimerHandle | None = None
        self.on_made: Callable[[], object] | None = None
        self.on_lost: Callable[[], object] | None = None
        self.on_ready: Callable[[], object] | None = None
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = plain_address(cast("tuple[str, int] | None", transport.get_extra_info("peername")))[:2]
        self.peer = str(Address(host, port))
        if self.on_made is not None:
            self.on_made()
        if not self.is_encrypted:
            self.ready()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_expiry()
        if self.on_lost is not None:
            self.on_lost()

    def _end_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()

    def ready(self) -> None:
        """Wait for the other side."""
        self._end_expiry()
        if self.is_gone:
            return
        self.wait()
        if self.on_ready is not None:
            self.on_ready()
            self.on_ready = None
