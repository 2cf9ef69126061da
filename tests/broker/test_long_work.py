"""Long work of several clients at once: which client waits for which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from ottla.broker.long_work import LongWork
from ottla.protocol.work import DiskJob, Work
from ottla.server.clock import SystemClock
from ottla.server.workers import Priority


class HeldWorkers:
    """Workers whose calls end when the test says so, except the jobs of disks, which are quick."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.may_end = asyncio.Event()

    async def run(self, function: Callable[[], object]) -> object:
        self.began.append("compression")
        await self.may_end.wait()
        return function()

    async def on_disk(self, directory: str, priority: Priority, function: Callable[[], object]) -> object:
        self.began.append(directory)
        return function()


def compression(name: str) -> Work[str]:
    yield lambda: None
    return name


def roll(name: str) -> Work[str]:
    yield DiskJob("/disk", lambda: None)
    return name


async def test_a_roll_does_not_wait_for_the_batches_that_others_have_recompressed() -> None:
    """Before the fix six clients that sent 6 KB of zeros each kept the first record of any other topic waiting for 5 s."""
    loop = asyncio.get_running_loop()
    workers = HeldWorkers()
    tasks: list[asyncio.Task[Any]] = []
    world: Any = Mock(
        clock=SystemClock(loop), workers=workers, spawn=lambda work, name: tasks.append(loop.create_task(work))
    )
    long_work = LongWork(world)
    done: list[str] = []
    for work in (compression("first"), compression("second"), roll("roll")):
        long_work.run(Mock(), work, done.append, is_search=False)
    await tasks[2]
    assert done == ["roll"]
    assert workers.began == ["compression", "/disk"], "one compression at a time: its result may take 256 MiB"
    workers.may_end.set()
    await asyncio.gather(*tasks)
    assert done == ["roll", "first", "second"]
