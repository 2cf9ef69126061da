"""Threads for functions that release the GIL: fsync, compression, directory scans, password hashing.

Long work in Python does not belong on a thread, because it would take the event loop's time. It runs in a separate process.

Work that waits for a disk has one queue for each log directory, with separate threads. Without that, a disk that hung occupied
all threads of the node, so that the other disks could not flush; and the removal of 1,000 directories came before a flush that
a client waited for.

    urgent       ACKNOWLEDGE, ROLL, READ, FLUSH    four at a time, the most urgent first
    background   CHECKPOINT, RETENTION, REMOVAL    one at a time, beside the urgent ones, so that each makes progress
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from ottla.server.worker_process import OwnProcess, RunOnThread, WorkerProcess

#: Concurrent syncs share a journal commit, but calls that wait behind them wait longer.
URGENT_AT_ONCE = 4
BACKGROUND_AT_ONCE = 1
THREADS_OF_A_DISK = URGENT_AT_ONCE + BACKGROUND_AT_ONCE


class Priority(IntEnum):
    """The purpose of a call. Of the waiting calls, the first one with the lowest value runs next."""

    ACKNOWLEDGE = 0  # a flush or a checkpoint that a client or a leader waits for
    ROLL = 1  # an append waits for it, and so does its connection
    READ = 2  # bytes that are not in memory
    FLUSH = 3  # by flush.ms, or to bound the recovery after a crash
    CHECKPOINT = 4
    RETENTION = 5
    REMOVAL = 6


class DiskQueue:
    """The calls for one disk, which `run` carries out. The object belongs to the event loop."""

    def __init__(self, run: RunOnThread) -> None:
        self._run = run
        self._urgent = _Lane(URGENT_AT_ONCE)
        self._background = _Lane(BACKGROUND_AT_ONCE)

    async def run(self, priority: Priority, function: Callable[..., T], *args: object) -> T:
        """Call the function on a thread when it is its turn. Return its result, or raise its exception."""
        lane = self._urgent if priority < Priority.CHECKPOINT else self._background
        await lane.enter(priority)
        try:
            return await self._run(function, *args)
        finally:
            lane.leave()


class DiskQueues:
    """The queue of each log directory. `runner(directory)` makes the object that runs its calls."""

    def __init__(self, runner: Callable[[str], RunOnThread]) -> None:
        self._runner = runner
        self._queues: dict[str, DiskQueue] = {}

    async def run(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        queue = self._queues.get(directory)
        if queue is None:
            queue = self._queues[directory] = DiskQueue(self._runner(directory))
        return await queue.run(priority, function, *args)


class _Lane:
    """A number of places, which waiting tasks get in the order of their priorities."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._count = 0

    async def enter(self, priority: Priority) -> None:
        if self._free:
            self._free -= 1
            return
        self._count += 1
        turn = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (priority, self._count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it already has the place
            raise

    def leave(self) -> None:
        """Give the place to the next waiting task, unless that has been cancelled."""
        while self._waiting:
            turn = heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


T = TypeVar("T")

#: The number of threads. Kafka's background.threads is 10; here they share one interpreter. Eight threads close 500 partitions
#: in half the time that four need.
THREADS = 8
#: At its end the process waits at most this long for a call to another machine that does not return.
LONE_END_S = 5.0
#: The most queued functions. Further callers wait, so that a slow disk cannot fill the memory with closures.
QUEUED_MAX = 256


class Workers(Protocol):
    """A pool that runs blocking functions."""

    async def run(self, function: Callable[..., T], *args: object) -> T: ...

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        """Run a function that waits for the disk of this log directory, in its queue and on its threads."""

    def process(self) -> WorkerProcess:
        """Return a process for long work in Python. Its first call starts it, and its user closes it."""

    def apart(self, name: str) -> Workers:
        """Return an additional thread, for calls that must neither delay the disk's work nor wait behind it."""


class LoneThread(Executor):
    """A single thread that does not keep a process from ending: its calls go to another machine, which may never respond."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None
        #: A call with its future, which may be cancelled before the call begins. None ends the thread.
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        self.ended: Future[None] = Future()

    def submit(self, function: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Let the thread call a function after those before it."""
        future: Future[T] = Future()
        self._calls.put((future, partial(function, *args, **kwargs)))
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after the call that it has begun, and after the others unless they are dropped."""
        with suppress(Empty):
            while cancel_futures and (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        self._calls.put(None)
        if self._thread is None and not self.ended.done():
            self.ended.set_result(None)
        if wait:
            self.ended.result()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as fault:
                future.set_exception(fault)
        self.ended.set_result(None)


class ThreadWorkers:
    """A bounded pool of named threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: int = THREADS,
        name: str = "worker",
        executor: Executor | None = None,
    ) -> None:
        self._loop = loop
        self._executor = executor or ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = asyncio.Semaphore(QUEUED_MAX)
        self._apart: list[ThreadWorkers] = []
        self._disks = DiskQueues(lambda directory: self._of(f"disk {directory}", THREADS_OF_A_DISK).run)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        async with self._room:
            return await self._loop.run_in_executor(self._executor, function, *args)

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        return await self._disks.run(directory, priority, function, *args)

    def process(self) -> OwnProcess:
        return OwnProcess(ThreadWorkers(self._loop, threads=1, name="process").run)

    def apart(self, name: str) -> ThreadWorkers:
        return self._with(ThreadWorkers(self._loop, executor=LoneThread(name)))

    def _of(self, name: str, threads: int) -> ThreadWorkers:
        return self._with(ThreadWorkers(self._loop, threads, name))

    def _with(self, made: ThreadWorkers) -> ThreadWorkers:
        self._apart.append(made)
        return made

    def close(self) -> None:
        """Wait for running functions, for those of single threads at most some seconds in all.

        Drop functions that have not begun.
        """
        executors = [self._executor, *(each._executor for each in self._apart)]
        for each in executors:
            each.shutdown(wait=False, cancel_futures=True)
        wait([each.ended for each in executors if isinstance(each, LoneThread)], LONE_END_S)
        for each in executors:
            if not isinstance(each, LoneThread):
                each.shutdown()
