"""Network cuts without root: connections between nodes, and of clients, pass through proxies, one per direction of dialling, that can stall.

A cut acts as if packets vanished. So nothing is closed and nothing is refused. An existing connection goes silent in the
direction that is cut; bytes that were sent wait, as in a sender's retransmissions, and arrive after `mend`. A new connection is
not accepted, whichever side dials and whichever direction is cut, because its handshake needs both. Even the death of the other
process is not noticed through a cut.

Clients count as one more place. They connect to the address that a node advertises, which is that of its proxy. A link can also
be slow: bytes take longer (latency), or wait until those before them have passed (bandwidth).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import permutations
from typing import NamedTuple, Never

from ottla.local.nodes import HOST, LocalNode

CHUNK_BYTES = 256 * 1024
#: The most chunks in flight on a slow link. Beyond them the sender waits, as with a full window.
QUEUE_MAX = 64
#: This stands for all clients, in place of a node's id.
CLIENTS = 0
#: How long to wait for the thread that moves the bytes. Its answers take milliseconds, if it gets the processor.
ANSWER_SECONDS_MAX = 60.0


class Direction(NamedTuple):
    """Bytes from one node, or CLIENTS, to another."""

    sender: int
    receiver: int


class Arrival(NamedTuple):
    """Bytes on their way, and the time at which the last of them can arrive."""

    at: float
    data: bytes


class WayState(NamedTuple):
    """The state of one direction of a link."""

    is_open: bool
    latency_s: float
    bytes_per_s: float | None


AS_MADE = WayState(True, 0.0, None)


class Way:
    """The quality of one direction of a link."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.latency_s = 0.0
        #: The bytes that pass in a second. None means no limit.
        self.bytes_per_s: float | None = None
        self._free_at = 0.0
        self._changed = asyncio.Event()

    def passes_at(self, now: float, size: int) -> float:
        """Return the time at which this many bytes that arrive now have passed."""
        if self.bytes_per_s is None:
            return now
        self._free_at = max(now, self._free_at) + size / self.bytes_per_s
        return self._free_at

    async def carry(self, due: float, size: int) -> None:
        """Wait until this many bytes that were due then have passed, or until the state of the link changes."""
        left = self.passes_at(due, size) - time.monotonic()
        if left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        else:
            await asyncio.sleep(0)

    @property
    def state(self) -> WayState:
        return WayState(self.open.is_set(), self.latency_s, self.bytes_per_s)

    def set(self, state: WayState) -> None:
        is_open, self.latency_s, self.bytes_per_s = state
        self._free_at = 0.0
        self._changed.set()  # bytes in flight at the old speed would arrive long after the end of the fault
        self._changed = asyncio.Event()
        if is_open:
            self.open.set()
        else:
            self.open.clear()

    @property
    def piece_bytes(self) -> int:
        """The bytes of a twentieth of a second, so that they arrive evenly."""
        return CHUNK_BYTES if self.bytes_per_s is None else max(1, min(CHUNK_BYTES, int(self.bytes_per_s / 20)))


class Links:
    """All connections between the given nodes. A separate thread moves their bytes."""

    def __init__(self, nodes: Iterable[LocalNode], client_ports: Mapping[int, int] | None = None) -> None:
        """Take the port at which clients connect to each node. A node without one gets a free port."""
        self._client_ports = client_ports or {}
        self._nodes = {node.id: node for node in nodes}
        self._loop = asyncio.new_event_loop()
        self._ways_of = {Direction(*pair): Way() for pair in permutations([CLIENTS, *self._nodes], 2)}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.AbstractServer] = []
        #: Dialling node -> target -> the proxies of the target's broker listener and controller listener.
        self._ways: dict[int, dict[int, list[int]]] = {dialler: {} for dialler in (CLIENTS, *self._nodes)}
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla links", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def detours(self, dialler: int) -> str:
        """Return the value of `ottla.peer.detours` for a node."""
        ways = []
        for target, (to_broker, to_controller) in self._ways[dialler].items():
            ways += [(self.advertised_port(target), to_broker), (self._nodes[target].controller_port, to_controller)]
        return ",".join(f"{HOST}:{port}={HOST}:{way}" for port, way in ways)

    def advertised_port(self, node_id: int) -> int:
        """Return the port at which clients connect to a node."""
        return self._ways[CLIENTS][node_id][0]

    def cut(self, *directions: Direction) -> None:
        self._call(self._set(directions, is_open=False))

    def mend(self, *directions: Direction) -> None:
        """Mend the given directions, or all. Slow ones become as fast as before."""
        self._call(self._set(directions or self._ways_of, is_open=True))

    def slow(self, directions: Iterable[Direction], latency_s: float | None, bytes_per_s: float | None) -> None:
        """Set the latency, or the bandwidth, of these directions. None leaves it unchanged."""
        self._call(self._slow(list(directions), latency_s, bytes_per_s))

    def states(self) -> dict[Direction, WayState]:
        """Return the directions that are cut or slow."""
        return {direction: way.state for direction, way in self._ways_of.items() if way.state != AS_MADE}

    def restore(self, states: Mapping[Direction, WayState]) -> None:
        """Set all directions to the states that `states` has returned."""
        self._call(self._restore(states))

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- In the thread -----------------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[object, Never, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        done.result(ANSWER_SECONDS_MAX)

    async def _listen(self) -> None:
        for dialler, target in self._ways_of:
            if target == CLIENTS:
                continue
            ways = self._ways[dialler][target] = []
            own = self._client_ports.get(target, 0) if dialler == CLIENTS else 0
            for port, at in ((self._nodes[target].port, own), (self._nodes[target].controller_port, 0)):
                server = await asyncio.start_server(self._accepted(dialler, target, port), HOST, at)
                self._servers.append(server)
                ways.append(server.sockets[0].getsockname()[1])

    async def _set(self, directions: Iterable[Direction], is_open: bool) -> None:
        for way in map(self._ways_of.__getitem__, directions):
            way.set(AS_MADE if is_open else way.state._replace(is_open=False))

    async def _restore(self, states: Mapping[Direction, WayState]) -> None:
        for direction, way in self._ways_of.items():
            way.set(states.get(direction, AS_MADE))

    async def _slow(self, directions: Iterable[Direction], latency_s: float | None, bytes_per_s: float | None) -> None:
        for way in map(self._ways_of.__getitem__, directions):
            way.latency_s = way.latency_s if latency_s is None else latency_s
            way.bytes_per_s = way.bytes_per_s if bytes_per_s is None else bytes_per_s

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        # A connection that is being accepted adds a task while others end.
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accepted(
        self, dialler: int, target: int, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._join(dialler, target, port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accepted

    async def _join(
        self, dialler: int, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = self._ways_of[Direction(dialler, target)], self._ways_of[Direction(target, dialler)]
        writers = [writer]
        try:
            await there.open.wait()
            await back.open.wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, port)
            writers.append(far_writer)
            coming: asyncio.Queue[Arrival] = asyncio.Queue(QUEUE_MAX)
            going: asyncio.Queue[Arrival] = asyncio.Queue(QUEUE_MAX)
            steps = (
                _read(reader, going, there),
                _write(going, far_writer, there, back),
                _read(far_reader, coming, back),
                _write(coming, writer, back, there),
            )
            moving = [self._loop.create_task(step) for step in steps]
            try:
                await asyncio.wait(moving[1::2], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in moving:
                    task.cancel()
                await asyncio.gather(*moving, return_exceptions=True)
        except OSError:
            pass  # no process listens there
        finally:
            for each in writers:
                each.close()


async def _read(reader: asyncio.StreamReader, queue: asyncio.Queue[Arrival], way: Way) -> None:
    """Take the bytes that one side has sent. No bytes mean the end."""
    while True:
        try:
            data = await reader.read(way.piece_bytes)
        except OSError:
            data = b""
        await queue.put(Arrival(time.monotonic() + way.latency_s, data))
        if not data:
            return


async def _write(queue: asyncio.Queue[Arrival], writer: asyncio.StreamWriter, way: Way, back: Way) -> None:
    """Pass bytes to the other side after the link's delay, until one side has closed and the close has passed too."""
    while True:
        due, data = await queue.get()
        await way.carry(due, len(data))
        await way.open.wait()
        if not data:
            return
        try:
            writer.write(data)
            await writer.drain()
        except OSError:
            await back.open.wait()
            return
