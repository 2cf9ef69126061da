"""A `World` made of virtual time, seeded chance, and a disk and a network that fail on request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ottla.server.tasks import Tasks
from ottla.server.workers import DiskQueues, Priority
from ottla.server.world import World
from tests.sim.disk import SimDisk
from tests.sim.loop import Lane, SimLoop
from tests.sim.network import SimHub
from tests.sim.threads import Threads

T = TypeVar("T")
DISK_SECONDS_MAX = 0.005
#: The share of jobs during which the loop runs, and how long a job stops there.
INTERLEAVED = 0.3
BETWEEN_CALLS_SECONDS_MAX = 0.001
#: The run begins at this wall time: any fixed time is suitable, as long as it is not near zero.
EPOCH_MS = 1_700_000_000_000


class SimClock:
    """Virtual time for one process.

    `skew_ms` moves its wall clock against the others', and its loop has a turn every `turn_ms`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0, turn_ms: float = 0) -> None:
        self._loop, self.skew_ms, self._turn_ms = loop, skew_ms, turn_ms
        self.is_over = False  # the process is gone, and its timers with it

    def wall_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + self.mono_ms()

    def mono_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def mono_ns(self) -> int:
        return int(self._loop.time() * 1_000_000_000)

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        delay_ms = max(delay_ms, self._turn_ms)
        return self._loop.call_later(delay_ms / 1000, lambda: None if self.is_over else callback())


class HangingDisk:
    """A disk that does no job until it is repaired, except those that it lets through, in their order."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def turn(self) -> None:
        waits = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        await waits

    def let_one_through(self) -> None:
        self._waiting = [waits for waits in self._waiting if not waits.done()]
        if self._waiting:
            self._waiting[0].set_result(None)

    def repair(self) -> None:
        for waits in self._waiting:
            if not waits.done():
                waits.set_result(None)


class SimWorkers:
    """Let the caller wait as long as a disk might, and run the work at once, or in pieces between its file system calls."""

    def __init__(
        self,
        rng: random.Random,
        seconds_max: Callable[[], float],
        threads: Threads,
        hangs: Callable[[str], HangingDisk | None] = lambda directory: None,
        apart: Callable[[str], SimWorkers | None] = lambda name: None,
    ) -> None:
        self._rng, self._seconds_max, self._hangs = rng, seconds_max, hangs
        self._threads, self._apart = threads, apart
        self._disks = DiskQueues(lambda directory: partial(self._run_in, directory))

    async def run(self, function: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(self._rng.uniform(0.0001, self._seconds_max()))
        if self._rng.random() >= INTERLEAVED:
            return function(*args)
        thread = self._threads.begin(partial(function, *args))
        try:
            while True:
                if thread.resume():
                    result: T = thread.result()
                    return result
                await asyncio.sleep(self._rng.uniform(0, BETWEEN_CALLS_SECONDS_MAX))
        finally:
            self._threads.end(thread)

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        return await self._disks.run(directory, priority, function, *args)

    async def _run_in(self, directory: str, function: Callable[..., T], *args: object) -> T:
        if (disk := self._hangs(directory)) is not None:
            await disk.turn()
        return await self.run(function, *args)

    def process(self) -> SimProcess:
        return SimProcess(self)

    def apart(self, name: str) -> SimWorkers:
        return self._apart(name) or self


class SimProcess:
    """A worker process: its object is in this process, and each call makes its caller wait for a while."""

    def __init__(self, workers: SimWorkers) -> None:
        self._workers = workers
        self._object: Any = None

    async def make(self, factory: Callable[..., object], *args: object) -> None:
        self._object = await self._workers.run(factory, *args)

    async def call(self, method: str, *args: object) -> Any:
        return await self._workers.run(getattr(self._object, method), *args)

    async def close(self) -> None:
        self._object = None


class SimHost:
    """One host: its disk outlives its processes, each of which gets a `World`, turns and a set of tasks of its own."""

    def __init__(self, name: str, hub: SimHub, rng: random.Random) -> None:
        self.name, self.hub, self.rng = name, hub, rng
        self.clock = SimClock(asyncio.get_running_loop())
        self.disk = self.empty_disk(random.Random(rng.getrandbits(64)))
        self.lane = Lane(name)
        self.tasks: Tasks | None = None
        #: The longest time of work on another thread, which is a flush in most cases.
        self.disk_seconds_max = DISK_SECONDS_MAX
        #: The log directories whose disks hang.
        self.hanging: dict[str, HangingDisk] = {}
        #: The separate workers with this name, if there are some.
        self.apart: Callable[[str], SimWorkers | None] = lambda name: None
        #: The time of a turn of its processes' loop: other events happen between two slices of some work.
        self.turn_ms = 0.0

    def empty_disk(self, rng: random.Random) -> SimDisk:
        disk = SimDisk(rng, lambda: self.clock.wall_ms())
        disk.on_killed = self._process_ended
        return disk

    def repair(self) -> None:
        for disk in self.hanging.values():
            disk.repair()
        self.hanging.clear()

    def _process_ended(self) -> None:
        """Let its tasks that still run reach no other process, until `crash`."""
        self.clock.is_over = True
        self.hub.take_down(self.name)

    def boot(self) -> World:
        """A new process on this host."""
        loop = asyncio.get_running_loop()
        self.hub.dark.discard(self.name)
        self.lane = Lane(self.name)
        self.clock = SimClock(loop, self.clock.skew_ms, self.turn_ms)
        self.tasks = Tasks(loop)
        rng = random.Random(self.rng.getrandbits(64))
        self.disk.threads = Threads(random.Random(rng.getrandbits(64)))
        workers = SimWorkers(rng, lambda: self.disk_seconds_max, self.disk.threads, self.hanging.get, self.apart)
        return World(self.clock, rng, self.disk, self.hub.host(self.name), workers, self.tasks.spawn)

    def pause(self) -> None:
        """Send SIGSTOP: no line of the process runs until `resume`; its kernel still accepts data."""
        self.lane.paused = True

    def resume(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.resume(self.lane)

    async def crash(self, power: bool) -> None:
        """The process ends without running another line; with `power`, unsynced pages are lost, too."""
        if power:
            self.hub.dark.add(self.name)
        self.disk.kill()
        self.resume()
        tasks: Any = self.tasks
        if tasks is not None:
            await tasks.close()
        self.lane.closed = True
        self.disk.crash(power)
