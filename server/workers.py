"""Threads for work that leaves the interpreter: fsync, compression, directory scans, password hashing.

Work made of Python bytecode does not belong on a thread: it would take the event loop's time. It has a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from ottla.server.worker_process import OwnProcess, WorkerProcess

T = TypeVar("T")

#: Kafka's background.threads is 10; ours share one interpreter. What they do is mostly waiting for the disk, where syncs that wait
#: at the same time share a journal commit: eight close 500 partitions in half the time that four take.
THREADS = 8
#: Callers beyond this many wait before their work is queued, so that a slow disk cannot fill the memory with closures.
QUEUED_MAX = 256


class Workers(Protocol):
    """Somewhere to run a blocking function."""

    async def run(self, function: Callable[..., T], *args: object) -> T: ...

    def process(self) -> WorkerProcess:
        """A process for work made of Python bytecode. It is started when it is first used, and its user closes it."""


class ThreadWorkers:
    """A bounded pool of named threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS, name: str = "worker") -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = asyncio.Semaphore(QUEUED_MAX)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        async with self._room:
            return await self._loop.run_in_executor(self._executor, function, *args)

    def process(self) -> OwnProcess:
        return OwnProcess(ThreadWorkers(self._loop, threads=1, name="process"))

    def close(self) -> None:
        """Let running work end; drop what has not begun."""
        self._executor.shutdown(wait=True, cancel_futures=True)
