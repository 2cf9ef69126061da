"""World: all access of a node's components to the outside, in one object.

This module makes the real one; the simulator makes its own, with virtual time, seeded randomness, and a disk and a network
with faults.
"""

from __future__ import annotations

import asyncio
import random

from ottla.protocol.slotted import frozen
from ottla.server.clock import Clock, SystemClock
from ottla.server.tasks import Spawn, Tasks
from ottla.server.transport import Network, TcpNetwork
from ottla.server.workers import ThreadWorkers, Workers
from ottla.storage.files import Files, OsFiles


@frozen
class World:
    """A node's access to the outside: clocks, chance, files, network, threads.

    `spawn(coroutine, name)` runs a task that belongs to the node.
    """

    clock: Clock
    rng: random.Random
    files: Files
    network: Network
    workers: Workers
    spawn: Spawn

    @property
    def session_clock(self) -> Clock:
        """The clock for times that clients and operators set in minutes to days: sessions, transactions, retention, compaction.

        Usually it is the node's clock. A test may move only this clock, so that days pass for the data while no broker is
        fenced.
        """
        return self.clock


class RealWorld:
    """The real world, outside of the simulator. It must be closed when the node stops."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tasks = Tasks(loop)
        self.workers = ThreadWorkers(loop)
        self.world = World(
            clock=SystemClock(loop),
            # Nonces and ids of sessions come from it. Clients must not be able to predict these.
            rng=random.SystemRandom(),
            files=OsFiles(),
            network=TcpNetwork(loop, self.tasks.spawn),
            workers=self.workers,
            spawn=self.tasks.spawn,
        )

    async def close(self) -> None:
        await self.tasks.close()
        self.workers.close()
