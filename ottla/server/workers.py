"""Threads for functions that release the GIL: fsync, compression, directory scans, password hashing.

Long work in Python does not belong on a thread, because it would take the event loop's time. It has a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from ottla.server.disk_queue import THREADS_OF_A_DISK, DiskQueues, Priority
from ottla.server.worker_process import OwnProcess, WorkerProcess

T = TypeVar("T")

#: Kafka's background.threads is 10; here they share one interpreter. Eight threads close 500 partitions in half the time of four.
THREADS = 8
#: The limit of queued functions. Further callers wait, so that a slow disk cannot fill the memory with closures.
QUEUED_MAX = 256


class Workers(Protocol):
    """A pool that runs blocking functions."""

    async def run(self, function: Callable[..., T], *args: object) -> T: ...

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        """Runs a function that waits for the disk of this log directory, by its own queue and threads (`disk_queue.py`)."""

    def process(self) -> WorkerProcess:
        """Returns a process for long work in Python. It is started by the first call, and its user closes it."""

    def apart(self, name: str) -> Workers:
        """Returns one thread more, for calls that must not keep the disk's work waiting, or not wait behind it."""


class ThreadWorkers:
    """A bounded pool of named threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS, name: str = "worker") -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = asyncio.Semaphore(QUEUED_MAX)
        self._apart: list[ThreadWorkers] = []
        self._disks = DiskQueues(lambda directory: self._of(f"disk {directory}", THREADS_OF_A_DISK).run)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        async with self._room:
            return await self._loop.run_in_executor(self._executor, function, *args)

    async def on_disk(self, directory: str, priority: Priority, function: Callable[..., T], *args: object) -> T:
        return await self._disks.run(directory, priority, function, *args)

    def process(self) -> OwnProcess:
        return OwnProcess(ThreadWorkers(self._loop, threads=1, name="process"))

    def apart(self, name: str) -> ThreadWorkers:
        return self._of(name, 1)

    def _of(self, name: str, threads: int) -> ThreadWorkers:
        made = ThreadWorkers(self._loop, threads, name)
        self._apart.append(made)
        return made

    def close(self) -> None:
        """Waits for running functions; drops those that have not begun."""
        for each in self._apart:
            each.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
