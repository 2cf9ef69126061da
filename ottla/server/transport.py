"""The only access to the network: listening and connecting, with asyncio's transports and protocols on both sides."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import Protocol

from ottla.protocol.slotted import frozen
from ottla.server.address import Address, parse_address
from ottla.server.listening import bound_sockets, shown
from ottla.server.tasks import Spawn

log = logging.getLogger(__name__)

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

#: The kernel keeps at least this many connections until they are accepted. Kafka's socket.listen.backlog.size is 50, with a
#: thread that only accepts. Here one loop has turns of milliseconds, and a client that finds the queue full retries a second
#: later: 5,000 clients arrived at 72 a second.
LISTEN_BACKLOG = 1024
#: One turn of the loop accepts this many connections; libuv accepts one. More would delay requests, because each takes about
#: 0.1 ms.
ACCEPTS_PER_TURN = 64
#: The share of all descriptors that a listener may hold for sockets without a connection. A connection is made, and counted,
#: two turns after its socket was accepted, and an older one that is closed for it a turn later: with 64 a turn that was 192
#: above the limit. A process with more than 1,536 descriptors accepts as many as before.
ARRIVING_PART = 8
#: The pause in accepting if this process has no descriptor or memory for another connection.
OUT_OF_DESCRIPTORS_S = 1.0
#: For the rest of a frame, the loop is woken when this many bytes of it are there, or all. Fewer than the first number are not
#: worth a system call; more than the second would no longer be in the processor's cache when they are used.
LOW_WATER_BYTES = 4 * 1024
LOW_WATER_BYTES_MAX = 64 * 1024
#: A peer counts as near if its handshake took at most this long: it is on this machine (7 to 22 us measured), in a container
#: beside, or in the same rack.
NEAR_RTT_US = 100
#: The send buffer for a near peer: 5 GB/s at that round trip, more than one loop sends. The kernel would let it grow to 4 MB, and so
#: much is out of the processor's cache again before the peer reads it. Streaming slices of 1 MB took 0.25 s of CPU per GB and takes
#: 0.17 to 0.20 on loopback, at 5 GB/s instead of 3.6; between two network namespaces 0.36 to 0.46, and 0.19.
NEAR_SEND_BUFFER_BYTES = 512 * 1024
#: The head of what TCP_INFO gives on Linux: the last field is the smoothed round-trip time in microseconds.
ROUND_TRIP = Struct("=68xI")
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Descriptors that clients' connections leave for files and for other nodes; of a small limit it is half. Each flush opens its
#: file, 256 files with large writes stay open (storage/mapped_file.py), and a node without a descriptor for its metadata log
#: has to wait.
DESCRIPTORS_RESERVED = 512


@frozen
class SocketOptions:
    """The options of accepted sockets; a buffer size of -1 leaves it to the kernel, which then adapts it."""

    backlog: int = LISTEN_BACKLOG
    #: The size of the send buffer. None: it depends on the distance of the peer.
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int = -1


DEFAULT_OPTIONS = SocketOptions()

#: Since Python 3.12 asyncio's sockets have their own `writelines`. In 3.12.1 and 3.13.0 it does not pause the protocol: 2,000
#: responses of 200 KB were kept for a client that read none. 3.13.18 and 3.14 pause it.
FORGETS_TO_PAUSE = "asyncio.selector_events" if sys.version_info < (3, 14) else ""


#: Up to this many bytes, copying the pieces into one takes less time than a system call with many pieces.
JOIN_BYTES = 64 * 1024
#: uvloop fails with EINVAL above 2^20 buffers, and a copy takes less time than a hundred thousand small ones: DescribeConfigs
#: of 2,500 topics has a million.
PIECES_MAX = 1 << 16


def write_pieces(
    transport: asyncio.WriteTransport, pieces: Sequence[bytes | bytearray | memoryview], nbytes: int
) -> None:
    """Pass all pieces, which have this many bytes together, to the transport in one call.

    Pause its protocol if the peer does not read them.
    """
    if nbytes <= JOIN_BYTES or len(pieces) > PIECES_MAX or type(transport).__module__ == FORGETS_TO_PAUSE:
        transport.write(b"".join(pieces))
    else:
        transport.writelines(pieces)


class LowWater:
    """How many bytes must have arrived before a connection is read (SO_RCVLOWAT).

    This class leaves the kernel's default, which wakes for each byte.

    librdkafka makes one TLS record of each message and one write of each record, and the server was woken for every fourth of them:
    250 reads per MB. But the server knows how much of a Produce is missing, and can read when that is there.
    """

    __slots__ = ()

    def at(self, nbytes: int) -> None:
        """Note that at least `nbytes` more will come, if the peer continues; 0 if that is not known."""


class SocketLowWater(LowWater):
    """The `LowWater` of a TCP socket. The kernel also wakes at the end of the stream, and when its own buffer is full."""

    __slots__ = ("_bytes", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._bytes = 1

    def at(self, nbytes: int) -> None:
        nbytes = 1 if nbytes < LOW_WATER_BYTES else min(nbytes, LOW_WATER_BYTES_MAX)
        if nbytes != self._bytes:
            self._bytes = nbytes
            with suppress(OSError):  # it has been closed
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, nbytes)


NO_LOW_WATER = LowWater()


class Woken(asyncio.BufferedProtocol):
    """A protocol that says for how many bytes it waits."""

    __slots__ = ()

    def woken_by(self, low_water: LowWater) -> None:
        """Take the socket, once there is one."""
        raise NotImplementedError


class Server(Protocol):
    """A bound socket. It accepts connections from `begin` on; until then they are refused."""

    @property
    def port(self) -> int: ...
    @property
    def addresses(self) -> list[str]:
        """Return the bound addresses. "0.0.0.0" and "::" mean all addresses of their family."""

    async def begin(self) -> None: ...
    async def close(self) -> None: ...
    def hold(self, delay_s: float) -> None:
        """Accept nothing more for this long, because a limit of new connections per second has been reached."""


class Network(Protocol):
    """Opens every socket of Ottla. TLS is a layer above it (`tls_stream.py`)."""

    @property
    def room(self) -> int:
        """Return how many connections of clients are possible beside the node's files."""

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> Server: ...

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport: ...


class TcpServer:
    """The listening sockets of a host.

    `port` is the bound one, also if 0 was requested. It accepts connections itself: the loop's own servers accept one a turn
    (libuv since 1.45), and cannot be paused.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        sockets: list[socket.socket],
        protocol_factory: ProtocolFactory,
        options: SocketOptions,
        arriving_max: int,
    ) -> None:
        """Take in `arriving_max` how many accepted sockets may be without their connection at the same time."""
        self.port: int = sockets[0].getsockname()[1]
        self.addresses = shown(sockets)
        self._loop = loop
        self._spawn = spawn
        self._sockets = sockets
        self._protocol_factory = protocol_factory
        self._options = options
        self._arriving_max = arriving_max
        self._arriving = 0
        self._held: asyncio.TimerHandle | None = None
        self._closed = False

    async def begin(self) -> None:
        for sock in self._sockets:
            sock.listen(self._options.backlog)
        self._go_on()

    async def close(self) -> None:
        """Stop accepting; open connections stay open."""
        if self._closed:
            return
        self._closed = True
        if self._held is not None:
            self._held.cancel()
        self._pause()
        for sock in self._sockets:
            sock.close()

    def hold(self, delay_s: float) -> None:
        if self._held is None and not self._closed:
            self._pause()
            self._held = self._loop.call_later(delay_s, self._go_on)

    def _go_on(self) -> None:
        self._held = None
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _pause(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(min(ACCEPTS_PER_TURN, self._arriving_max - self._arriving)):
            if self._held is not None or self._closed:
                return
            try:
                accepted, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failure:
                if failure.errno not in OUT_OF_DESCRIPTORS:
                    raise
                log.error("No connection can be accepted at the moment: %s", failure)
                self.hold(OUT_OF_DESCRIPTORS_S)
                return
            protocol = self._protocol_factory()
            self._arriving += 1
            self._spawn(self._serve(accepted, protocol), "accept")

    async def _serve(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        try:
            accepted.setblocking(False)
            self._set_options(accepted)
            if isinstance(protocol, Woken):
                protocol.woken_by(SocketLowWater(accepted))
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError as failure:
            log.debug("A connection was gone before it was served: %s", failure)
            accepted.close()
        finally:
            self._arriving -= 1

    def _set_options(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in (
            (socket.SO_SNDBUF, send_buffer_bytes(self._options.send_buffer_bytes, _round_trip_us(accepted))),
            (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
        ):
            if size >= 0:
                accepted.setsockopt(socket.SOL_SOCKET, option, size)


def descriptors() -> int:
    """Return how many descriptors this process may have."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def descriptors_reserved(limit: int) -> int:
    """Return how many of `limit` descriptors are kept from clients' connections."""
    return min(DESCRIPTORS_RESERVED, limit // 2)


def send_buffer_bytes(configured: int | None, round_trip_us: int) -> int:
    """Return the size of an accepted socket's send buffer, or -1 to leave it to the kernel. A round trip of 0 is unknown."""
    if configured is not None:
        return configured
    return NEAR_SEND_BUFFER_BYTES if 0 < round_trip_us <= NEAR_RTT_US else -1


def _round_trip_us(accepted: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    found: int = ROUND_TRIP.unpack(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ROUND_TRIP.size))[0]
    return found


class TcpNetwork:
    """The TCP network, over IPv4 and IPv6."""

    def __init__(self, loop: asyncio.AbstractEventLoop, spawn: Spawn) -> None:
        self._loop = loop
        self._spawn = spawn

    @property
    def room(self) -> int:
        limit = descriptors()
        return limit - descriptors_reserved(limit)

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> TcpServer:
        """Bind and listen. `listening.py` has the addresses of a host."""
        sockets = bound_sockets(host, port)
        arriving_max = max(1, descriptors() // ARRIVING_PART)
        return TcpServer(self._loop, self._spawn, sockets, protocol_factory, options, arriving_max)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport:
        transport, _ = await self._loop.create_connection(protocol_factory, host, port)
        return transport


def plain_address(name: tuple[str, int] | None) -> tuple[str, int]:
    """Return host and port of one end. An IPv4 address is shown as such, also if it came in through a socket for both families."""
    if not name:
        return "", 0
    return name[0].removeprefix("::ffff:"), name[1]


class Detours:
    """A network that connects to the addresses in `ways` instead of the given ones.

    Listening is unchanged. It is for tests, whose proxies at those addresses can cut connections.
    """

    def __init__(self, network: Network, ways: Mapping[Address, Address]) -> None:
        self._network = network
        self._ways = dict(ways)

    @property
    def room(self) -> int:
        return self._network.room

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> Server:
        return await self._network.listen(host, port, protocol_factory, options)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport:
        host, port = self._ways.get(Address(host, port), Address(host, port))
        return await self._network.connect(host, port, protocol_factory)


def read_ways(text: str) -> dict[Address, Address]:
    """Parse `HOST:PORT=HOST:PORT,...`. Raises ValueError for other text."""
    ways = {}
    for pair in filter(None, text.split(",")):
        target, _, way = pair.partition("=")
        ways[parse_address(target)] = parse_address(way)
    return ways
