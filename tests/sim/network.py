"""A network in memory: links between named hosts that can be cut (one way or both), delayed and reset.

A link delivers the bytes of a direction in order, in pieces cut at random, after a random delay. A cut link keeps bytes
back, as TCP would retransmit them, until it is healed or the connection is given up after `GIVE_UP_SECONDS`. A host that
is down refuses connections, and resets those it had. Bytes travel outside of all processes' lanes, and are handed to a process in
its own: one that is paused is connected to and sent to, and answers nothing.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ottla.server.transport import DEFAULT_OPTIONS, ProtocolFactory, SocketOptions
from tests.sim.loop import LANE, OUTSIDE, Lane

#: Linux gives up an established connection after about fifteen minutes; thirty seconds show the same in a run.
GIVE_UP_SECONDS = 30.0
CONNECT_SECONDS_MAX = 10.0
CUT_RETRY_SECONDS = 0.2
WRITE_BUFFER_HIGH_BYTES = 64 * 1024
Address = tuple[str, int]
#: A listener: the host, its process, and the factory of protocols for its connections.
Entry = tuple[str, Lane, ProtocolFactory]


class SimHub:
    """All hosts and the links between them; the faults are set here."""

    def __init__(self, rng: random.Random, delay_ms: tuple[float, float] = (0.1, 2.0)) -> None:
        self.rng, self.delay_ms = rng, delay_ms
        self.listeners: dict[Address, Entry] = {}
        self.transports: dict[SimTransport, None] = {}  # in order, for a run that repeats
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self.dark: set[str] = set()  # hosts without power: no host sends a reset for a lost connection
        self.ended: Counter[str] = Counter()  # processes of each host
        self._next_port = 50_000

    def host(self, name: str) -> SimNetwork:
        return SimNetwork(self, name)

    def cut(self, source: str, target: str) -> None:
        """Hold back everything from `source` to `target`; the other direction is not changed."""
        self._cut.add((source, target))

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        others = list(others)
        for one in some:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def connections_of(self, host: str) -> list[SimTransport]:
        """Return the host's sides of connections, in the order in which they were made."""
        return [t for t in self.transports if t.host == host and t.peer is not None]

    @staticmethod
    def slow_connections(connections: Iterable[SimTransport], delay_ms: float) -> None:
        """Delay everything that is sent over these connections by this time from now on, in both directions; 0 ends it."""
        for connection in connections:
            for side in (connection, connection.peer):
                if side is not None:
                    side.slow_seconds = delay_ms / 1000

    def slow_down(self, source: str, target: str, delay_ms: float) -> None:
        """Delay everything from `source` to `target` by about this time from now on."""
        self._slow[source, target] = delay_ms

    def heal(self) -> None:
        self._cut.clear()
        self._slow.clear()
        for transport in list(self.transports):
            transport.deliver_soon()

    def mend(self, source: str, target: str) -> None:
        """Let data from `source` to `target` arrive again without delay."""
        self._cut.discard((source, target))
        self._slow.pop((source, target), None)
        for transport in list(self.transports):
            transport.deliver_soon()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or (bool(self.dark) and (source in self.dark or target in self.dark))

    def reset(self, some: str, other: str) -> None:
        """End every connection between the two hosts with ECONNRESET on both sides."""
        for transport in [t for t in self.transports if {t.host, t.peer_host} == {some, other}]:
            transport.lose(ConnectionResetError("simulated reset"))

    def take_down(self, host: str) -> None:
        """The process of `host` has ended: the kernel closes its sockets."""
        self.ended[host] += 1
        self.listeners = {address: entry for address, entry in self.listeners.items() if entry[0] != host}
        for transport in [t for t in self.transports if t.host == host]:
            transport.silence()

    def delay(self, source: str, target: str) -> float:
        extra = self._slow.get((source, target), 0.0)
        return (self.rng.uniform(*self.delay_ms) + (extra and self.rng.uniform(0.5, 1.5) * extra)) / 1000

    def new_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimTransport(asyncio.Transport):
    """One side of a connection."""

    def __init__(self, hub: SimHub, host: str, peer_host: str, lane: Lane, local: Address, remote: Address) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.hub, self.host, self.peer_host, self.lane = hub, host, peer_host, lane
        self.peer: SimTransport | None = None
        self._protocol: Any = None
        self._loop = asyncio.get_running_loop()
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._closing = self._lost = self._silent = self._reading_paused = self._writing_paused = False
        self._eof_after_outgoing = False
        #: The delay of this connection and this direction alone: other connections between the same hosts may overtake it.
        self.slow_seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._give_up: asyncio.TimerHandle | None = None
        hub.transports[self] = None

    # -- asyncio.Transport -------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def begin(self, factory: ProtocolFactory) -> None:
        """The process is notified of the connection."""
        if not self._lost:
            self._protocol = factory()
            self._protocol.connection_made(self)
            self._hand_over()

    def get_protocol(self) -> Any:
        return self._protocol

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost or self._closing:
            return
        self._outgoing += data
        if len(self._outgoing) > WRITE_BUFFER_HIGH_BYTES and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        self.deliver_soon()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self._outgoing)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._soon(self._hand_over)

    def is_reading(self) -> bool:
        return not self._reading_paused

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._eof_after_outgoing = True
            self.deliver_soon()
            self._soon(self.lose, None, False)

    def abort(self) -> None:
        self._outgoing.clear()
        self._closing = True
        self.lose(None)

    # -- the link ----------------------------------------------------------------------------------------------------

    def deliver_soon(self) -> None:
        if self._timer is None and (self._outgoing or self._eof_after_outgoing):
            delay = self.hub.delay(self.host, self.peer_host) + self.slow_seconds
            self._timer = self._loop.call_later(delay, self._deliver, context=OUTSIDE.context)

    def _soon(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.call_soon(callback, *args, context=self.lane.context)

    def _deliver(self) -> None:
        self._timer = None
        peer = self.peer
        if peer is None or peer._lost:
            return
        if self.hub.is_cut(self.host, self.peer_host):
            if self._give_up is None:
                self._give_up = self._loop.call_later(GIVE_UP_SECONDS, self._time_out, context=OUTSIDE.context)
            return
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None
        if self._outgoing:
            n = len(self._outgoing)
            n = n if self.hub.rng.random() < 0.9 else self.hub.rng.randint(1, n)
            peer._incoming += self._outgoing[:n]
            del self._outgoing[:n]
            peer._soon(peer._hand_over)
        if self._writing_paused and not self._lost and len(self._outgoing) < WRITE_BUFFER_HIGH_BYTES // 4:
            self._writing_paused = False
            self._soon(self._protocol.resume_writing)
        if self._outgoing:
            self.deliver_soon()
        elif self._eof_after_outgoing:
            self._eof_after_outgoing = False
            if self._lost:
                self._forget()
            peer._soon(peer._end, None)

    def _end(self, error: Exception | None) -> None:
        """The other side has ended. Earlier bytes are handed over first; bytes that the process does not read are lost."""
        self._hand_over()
        self.lose(error, notify_peer=False)

    def _time_out(self) -> None:
        if self.hub.is_cut(self.host, self.peer_host):
            self.lose(TimeoutError("simulated connection time-out"))

    def _hand_over(self) -> None:
        """Give the protocol the received bytes, through the asyncio interface that it has."""
        if self._protocol is None:
            return  # the process has not accepted the connection yet
        while self._incoming and not self._reading_paused and not self._lost and not self._closing:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(len(self._incoming)))
                n = min(len(room), len(self._incoming))
                room[:n] = self._incoming[:n]
                room.release()
                del self._incoming[:n]
                self._protocol.buffer_updated(n)
            else:
                data = bytes(self._incoming)
                self._incoming.clear()
                self._protocol.data_received(data)

    def lose(self, error: Exception | None, notify_peer: bool = True) -> None:
        """End the connection for this side; with `notify_peer` the other side learns it a moment later."""
        if self._lost:
            return
        self._lost = self._closing = True
        if not self._eof_after_outgoing:
            self._forget()
        if not self._silent and self._protocol is not None:
            self._soon(self._protocol.connection_lost, error)
        peer = self.peer
        if notify_peer and peer is not None and not peer._lost:
            delay = self.hub.delay(self.host, self.peer_host)
            self._loop.call_later(delay, self._notify_peer, error, context=OUTSIDE.context)

    def _notify_peer(self, error: Exception | None) -> None:
        """Send a reset or an end. It is delayed like data, and does not pass a cut link."""
        peer = self.peer
        if peer is None or peer._lost:
            return
        if self.hub.is_cut(self.host, self.peer_host):
            self._loop.call_later(CUT_RETRY_SECONDS, self._notify_peer, error, context=OUTSIDE.context)
        else:
            peer._soon(peer._end, error)

    def silence(self) -> None:
        """The process has ended: this side runs no more code of the node, and the other side sees a reset."""
        self._silent = True
        self._outgoing.clear()
        self.lose(ConnectionResetError("simulated end of the process"))

    def _forget(self) -> None:
        self.hub.transports.pop(self, None)
        for timer in (self._timer, self._give_up):
            if timer is not None:
                timer.cancel()


class SimServer:
    """See `server.transport.Server`."""

    def __init__(self, hub: SimHub, address: Address, entry: Entry) -> None:
        self._hub, self._address, self._entry = hub, address, entry

    @property
    def port(self) -> int:
        return self._address[1]

    @property
    def addresses(self) -> list[str]:
        return [self._address[0]]

    async def begin(self) -> None:
        self._hub.listeners[self._address] = self._entry

    async def close(self) -> None:
        self._hub.listeners.pop(self._address, None)

    def hold(self, delay_s: float) -> None:
        """Do nothing: connections cost nothing here."""


class SimNetwork:
    """See `server.transport.Network`: a host's view of the hub. Host names are the addresses."""

    def __init__(self, hub: SimHub, host: str) -> None:
        self._hub, self._host = hub, host
        self._process = hub.ended[host]

    @property
    def room(self) -> int:
        """Return no bound: connections have no descriptors here."""
        return sys.maxsize

    def _check_alive(self) -> None:
        if self._hub.ended[self._host] != self._process:
            raise ConnectionAbortedError("the process has ended")

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: ProtocolFactory,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> SimServer:
        self._check_alive()
        address = (self._host, port or self._hub.new_port())
        if address in self._hub.listeners:
            raise OSError(98, f"address {address} is in use")
        return SimServer(self._hub, address, (self._host, LANE.get(OUTSIDE), protocol_factory))

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.sleep(self._hub.delay(self._host, host))
        while self._hub.is_cut(self._host, host) or self._hub.is_cut(host, self._host):
            if loop.time() - begin > CONNECT_SECONDS_MAX:
                raise TimeoutError(f"no answer from {host}:{port}")
            await asyncio.sleep(0.2)
        self._check_alive()
        entry = self._hub.listeners.get((host, port))
        if entry is None:
            raise ConnectionRefusedError(111, f"no listener on {host}:{port}")
        return self._join(entry, (host, port), protocol_factory)

    def _join(self, entry: Entry, remote: Address, protocol_factory: ProtocolFactory) -> SimTransport:
        peer_host, lane, accept = entry
        local = (self._host, self._hub.new_port())
        ours = SimTransport(self._hub, self._host, peer_host, LANE.get(OUTSIDE), local, remote)
        theirs = SimTransport(self._hub, peer_host, self._host, lane, remote, local)
        ours.peer, theirs.peer = theirs, ours
        theirs._soon(theirs.begin, accept)
        ours.begin(protocol_factory)
        return ours
