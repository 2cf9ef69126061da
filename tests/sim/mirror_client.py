"""The connections of a worker to the clusters in memory (`mirror_model.py`), and their faults."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

from ottla.client.cluster import ClusterClient, NoConnection
from tests.sim.mirror_model import ModelCluster


class LoopClock:
    def mono_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    wall_ms = mono_ms


class Process:
    """The faults of all connections of a worker. Some of its requests are lost, half of these after they took effect."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lost = 0.0
        self.is_dead = False
        self.running = asyncio.Event()
        self.running.set()
        #: The future that a dead process waits for. The garbage collector would end tasks without a reference, at any time.
        self.never = asyncio.Event()

    async def turn(self) -> None:
        await asyncio.sleep(self.rng.random() * 0.01)
        await self.running.wait()
        if self.is_dead:
            await self.never.wait()


class ModelClient(ClusterClient):
    def __init__(self, cluster: ModelCluster, process: Process, timeout_ms: int = 5_000) -> None:
        world = SimpleNamespace(clock=LoopClock(), rng=process.rng, spawn=_spawn)
        super().__init__(cast(Any, world), [(cluster.name, 1)], timeout_ms)
        self._cluster, self._process = cluster, process
        #: Requests of one connection take effect in the order in which they are sent.
        self._order = asyncio.Lock()

    async def request(
        self, request: object, node: int | None = None, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        # A request that was sent takes effect, although no task waits for its response any more.
        return await asyncio.shield(_spawn(self._carry(request), "request"))

    async def _carry(self, request: object) -> Any:
        process = self._process
        async with self._order:
            await process.turn()
            is_lost = process.rng.random() < process.lost
            if is_lost and process.rng.random() < 0.5:
                raise NoConnection("lost before", None)
            response = await self._cluster.answer(request)
        await process.turn()
        if is_lost:
            raise NoConnection("lost after", None)
        return response


def _spawn(coroutine: Any, name: str) -> asyncio.Task[Any]:
    return asyncio.ensure_future(coroutine)
