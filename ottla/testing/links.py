"""Network cuts without root: connections between nodes, and of clients, pass through proxies, one per direction of dialling, that can stall.

What a cut is like: packets vanish. So nothing is closed and nothing is refused. A connection that is there goes silent, in the
direction that is cut; what was sent waits, as it would in a sender's retransmissions, and arrives after `mend`. A new one
is not answered, whichever side dials and whichever direction is cut: its handshake needs both. Even that the other process died
is not noticed through a cut.

Clients are one more place. They connect to the address that a node advertises, which is its proxy's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from itertools import permutations
from typing import NamedTuple, Never

from ottla.cli.local_nodes import HOST, Node

CHUNK_BYTES = 256 * 1024
#: All clients, in place of a node's id.
CLIENTS = 0


class Direction(NamedTuple):
    """Bytes from one node, or CLIENTS, to another."""

    sender: int
    receiver: int


class Links:
    """All connections between the given nodes. A thread of its own moves their bytes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._loop = asyncio.new_event_loop()
        self._open = {Direction(*pair): asyncio.Event() for pair in permutations([CLIENTS, *self._nodes], 2)}
        for event in self._open.values():
            event.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.AbstractServer] = []
        #: Dialler -> target -> the proxies of its brokers' and its controllers' listener.
        self._ways: dict[int, dict[int, list[int]]] = {dialler: {} for dialler in (CLIENTS, *self._nodes)}
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla links", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def detours(self, dialler: int) -> str:
        """Return `ottla.peer.detours` of a node."""
        ways = []
        for target, (to_broker, to_controller) in self._ways[dialler].items():
            ways += [(self.advertised_port(target), to_broker), (self._nodes[target].controller_port, to_controller)]
        return ",".join(f"{HOST}:{port}={HOST}:{way}" for port, way in ways)

    def advertised_port(self, node_id: int) -> int:
        """Return the port where clients connect to a node."""
        return self._ways[CLIENTS][node_id][0]

    def cut(self, *directions: Direction) -> None:
        self._call(self._set(directions, is_open=False))

    def mend(self, *directions: Direction) -> None:
        """Mend the given directions, or all."""
        self._call(self._set(directions or self._open, is_open=True))

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
        done.result(10)

    async def _listen(self) -> None:
        for dialler, target in self._open:
            if target == CLIENTS:
                continue
            ways = self._ways[dialler][target] = []
            for port in (self._nodes[target].port, self._nodes[target].controller_port):
                server = await asyncio.start_server(self._accepted(dialler, target, port), HOST, 0)
                self._servers.append(server)
                ways.append(server.sockets[0].getsockname()[1])

    async def _set(self, directions: Iterable[Direction], is_open: bool) -> None:
        for direction in directions:
            event = self._open[direction]
            if is_open:
                event.set()
            else:
                event.clear()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
        there, back = self._open[Direction(dialler, target)], self._open[Direction(target, dialler)]
        writers = [writer]
        try:
            await there.wait()
            await back.wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, port)
            writers.append(far_writer)
            pumps = (_pump(reader, far_writer, there, back), _pump(far_reader, writer, back, there))
            moving = [self._loop.create_task(pump) for pump in pumps]
            try:
                await asyncio.wait(moving, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in moving:
                    task.cancel()
                await asyncio.gather(*moving, return_exceptions=True)
        except OSError:
            pass  # no process listens there
        finally:
            for each in writers:
                each.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event, back: asyncio.Event
) -> None:
    """Copy bytes until one side has closed, and the close could pass the link."""
    while True:
        try:
            data = await reader.read(CHUNK_BYTES)
        except OSError:
            data = b""
        await way.wait()
        if not data:
            return
        try:
            writer.write(data)
            await writer.drain()
        except OSError:
            await back.wait()
            return
