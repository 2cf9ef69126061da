"""A node with faults: the world and the node of `ottla start`, and the socket by which the test's process sends the faults."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from ottla.node import process
from ottla.node.node import Node
from ottla.processes import start
from ottla.protocol.slotted import frozen
from ottla.server.clock import Clock
from ottla.server.config.listeners import Endpoint
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.listener import Listener
from ottla.server.network.route import Route
from ottla.server.world import RealWorld, World
from ottla.testing.inside.clock import NodeClock, SessionClock
from ottla.testing.inside.disk import Disk, SpoiledFiles
from ottla.testing.inside.faults import NodeFaults, decoded
from ottla.testing.inside.requests import RequestFaults

#: The largest message. All faults come in one message, and are smaller than this.
MESSAGE_BYTES_MAX = 1 << 20
DONE = b"done"


@frozen
class SpoiledWorld(World):
    """A world with a separate session clock."""

    sessions: Clock

    @property
    def session_clock(self) -> Clock:
        return self.sessions


class Control:
    """Receives the faults of one node from the socket, all of them each time, and confirms when they are in force."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, faults: NodeFaults) -> None:
        self._loop = loop
        self._fd = fd
        self._clock = NodeClock(loop)
        self._sessions = SessionClock(self._clock)
        self._disk = Disk()
        self.requests = RequestFaults(self._clock)
        self.set(faults)
        loop.add_reader(fd, self._read)

    def world(self, real: RealWorld) -> World:
        whole = real.world
        return SpoiledWorld(
            clock=self._clock,
            rng=whole.rng,
            files=SpoiledFiles(self._disk),
            network=whole.network,
            workers=whole.workers,
            spawn=whole.spawn,
            sessions=self._sessions,
        )

    def set(self, faults: NodeFaults) -> None:
        self._clock.ahead_ms = faults.advanced_ms + faults.skew_ms
        self._sessions.advance_to(faults.advanced_ms)
        self._disk.full, self._disk.slow_ms = faults.disk_full, faults.slow_disk_ms
        self.requests.set(faults)

    def _read(self) -> None:
        message = os.read(self._fd, MESSAGE_BYTES_MAX)
        if not message:  # the test's process has ended; the node's own pipe shows that too
            self._loop.remove_reader(self._fd)
            return
        self.set(decoded(message))
        os.write(self._fd, DONE)


class SpoiledNode(Node):
    """A node whose responses to clients go through the request faults."""

    def __init__(
        self, requests: RequestFaults, world: World, properties: Mapping[str, str], where: Mapping[str, str] | None
    ) -> None:
        self._requests = requests
        super().__init__(world, properties, where)

    async def _bind(self, endpoints: tuple[Endpoint, ...], routes: list[Route]) -> tuple[list[Listener], Dispatcher]:
        listeners, dispatcher = await super()._bind(endpoints, routes)
        if endpoints == self.config.broker_endpoints:
            for route in dispatcher.routes.rows:
                self._requests.stand_before(route)
        return listeners, dispatcher


def run(arguments: Sequence[str], fd: int, faults: NodeFaults) -> int:
    """Run `ottla start` with these arguments and faults until a signal stops it; return the process's exit code."""
    parsed = start.parser().parse_args(list(arguments))
    properties = start.properties_of(parsed)
    controls: list[Control] = []

    def outside(loop: asyncio.AbstractEventLoop) -> RealWorld:
        real = RealWorld(loop)
        controls.append(Control(loop, fd, faults))
        real.world = controls[0].world(real)
        return real

    def make(world: World, given: Mapping[str, str], where: Mapping[str, str] | None) -> Node:
        return SpoiledNode(controls[0].requests, world, given, where)

    return process.run(properties, dict.fromkeys(properties, "the test"), outside=outside, make=make)
