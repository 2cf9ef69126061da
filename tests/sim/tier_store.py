"""The store of remote segments in simulated clusters: one for all nodes, which outlives them.

A call takes a while, fails before or after its effect, or hangs until the store is well again. It runs on a thread of `threads.py` that stops
before each call, so that the node goes on, and dies, in the middle of a copy. A call that the node has given up goes on later all the same,
as a thread does that waits for an answer. No link leads here: a leader that is cut off from the controllers still reaches the store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import ottla.node.node
from ottla.server.config.node_config import NodeConfig
from ottla.tables.store import StoredObject, StoreFailure
from tests.sim import threads
from tests.sim.disk import Killed
from tests.sim.threads import SimThread
from tests.sim.world import EPOCH_MS, SimHost, SimWorkers

T = TypeVar("T")
#: The longest time of a call to a healthy store, and to a slow one.
CALL_SECONDS_MAX, SLOW_CALL_SECONDS_MAX = 0.03, 2.0
#: The interval at which a thread checks whether a hanging store is healthy again.
LOOK_SECONDS = 0.5


class ClusterStore:
    """The objects, and the present state of the store."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.objects: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        #: The share of calls that fail, half of them after they took effect.
        self.failing = 0.0
        self.hangs = self.is_slow = self.is_over = False
        self.calls = self.failures = 0

    def heal(self) -> None:
        self.failing, self.hangs, self.is_slow = 0.0, False, False

    @contextmanager
    def opened(self, host_of: Callable[[int], SimHost]) -> Iterator[None]:
        """Nodes that start in this block get this store; after the block, no call of a remaining thread returns."""

        def opening(config: NodeConfig) -> StoreHandle:
            return StoreHandle(self, host_of(config.node_id))

        before = ottla.node.node.open_tier_store
        vars(ottla.node.node)["open_tier_store"] = opening
        try:
            yield
        finally:
            self.is_over = True
            vars(ottla.node.node)["open_tier_store"] = before

    def call_seconds(self) -> float:
        if self.hangs:
            return LOOK_SECONDS
        return self.rng.uniform(0.001, SLOW_CALL_SECONDS_MAX if self.is_slow else CALL_SECONDS_MAX)


class StoreHandle:
    """The store as a process has opened it (`TierStore`). Calls of an ended process have no effect."""

    def __init__(self, store: ClusterStore, host: SimHost) -> None:
        self._store, self._disk, self._process = store, host.disk, host.disk.process

    def _call(self, effect: Callable[[], T]) -> T:
        store, thread = self._store, threads.current()
        if thread is not None:
            thread.stop()
            while store.hangs and not self._is_gone:
                thread.stop()
        if self._is_gone:
            raise Killed
        store.calls += 1
        fails = store.rng.random() < store.failing
        store.failures += fails
        if fails and store.rng.random() < 0.5:
            raise StoreFailure("failed before its effect")
        answer = effect()
        if fails:
            raise StoreFailure("the answer was lost")
        return answer

    @property
    def _is_gone(self) -> bool:
        return self._store.is_over or self._disk.killed or self._disk.process != self._process

    def put(self, name: str, data: bytes | memoryview) -> None:
        def effect() -> None:
            self._store.objects[name] = bytes(data)
            self._store.modified_ms[name] = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

        self._call(effect)

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        self.put(name, b"".join(parts))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._call(lambda: self._store.objects.setdefault(name, data) is data)

    def get(self, name: str) -> bytes | None:
        return self._call(lambda: self._store.objects.get(name))

    def size(self, name: str) -> int | None:
        return self._call(lambda: len(self._store.objects[name]) if name in self._store.objects else None)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        def effect() -> bytes:
            if name not in self._store.objects:
                raise StoreFailure(f"{name} is missing")
            return self._store.objects[name][start : start + length]

        return self._call(effect)

    def delete(self, name: str) -> None:
        self._call(lambda: self._store.objects.pop(name, None))

    def list(self, folder: str) -> Iterator[StoredObject]:
        names = self._call(lambda: sorted(name for name in self._store.objects if name.startswith(f"{folder}/")))
        yield from (StoredObject(name, 0, self._store.modified_ms[name]) for name in names)

    def folders(self, folder: str) -> list[str]:
        found = self._call(lambda: [name.removeprefix(f"{folder}/") for name in self._store.objects if "/" in name])
        return sorted({name.partition("/")[0] for name in found})

    def sweep(self, before_ms: int) -> Iterator[str]:
        return iter(())


class StoreWorkers(SimWorkers):
    """The threads on which a node calls the store; abandoned calls go on beside the others."""

    def __init__(self, store: ClusterStore, host: SimHost) -> None:
        super().__init__(store.rng, lambda: CALL_SECONDS_MAX, _threads_of(host))
        self._store, self._host = store, host

    async def run(self, function: Callable[..., T], *args: object) -> T:
        thread = self._threads.begin(partial(function, *args))
        try:
            await self._end_of(thread)
        except asyncio.CancelledError:
            tasks: Any = self._host.tasks
            if thread.is_over or tasks is None:
                self._threads.end(thread)
            else:
                tasks.spawn(self._left_behind(thread), "a call that was given up")
            raise
        except BaseException:
            self._threads.end(thread)
            raise
        try:
            result: T = thread.result()
            return result
        finally:
            self._threads.end(thread)

    async def _end_of(self, thread: SimThread) -> None:
        is_over = thread.resume()
        while not is_over:
            await asyncio.sleep(self._store.call_seconds())
            is_over = thread.resume()

    async def _left_behind(self, thread: SimThread) -> None:
        try:
            await self._end_of(thread)
        finally:
            self._threads.end(thread)


def _threads_of(host: SimHost) -> threads.Threads:
    assert host.disk.threads is not None
    return host.disk.threads
