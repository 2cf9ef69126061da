"""The jobs that wait for one disk: the order in which they run, and what a hanging disk delays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.server.workers import BACKGROUND_AT_ONCE, THREADS, URGENT_AT_ONCE, DiskQueue, Priority, ThreadWorkers

T = TypeVar("T")


class Disk:
    """A disk whose calls end when the test wants it."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[None]] = {}
        self.begun: list[str] = []
        self.queue = DiskQueue(self._run)

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        name = str(args[0])
        self.begun.append(name)
        self.running[name] = asyncio.get_running_loop().create_future()
        await self.running[name]
        return function(name)

    async def ask(self, priority: Priority, *names: str) -> list[asyncio.Task[str]]:
        tasks = [asyncio.ensure_future(self.queue.run(priority, str, name)) for name in names]
        await turns()
        return tasks

    async def end(self, name: str) -> None:
        self.running.pop(name).set_result(None)
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_most_urgent_of_those_that_wait_runs_next() -> None:
    disk = Disk()
    busy = [f"busy {n}" for n in range(URGENT_AT_ONCE)]
    await disk.ask(Priority.FLUSH, *busy)
    await disk.ask(Priority.READ, "read")
    await disk.ask(Priority.ROLL, "roll 1", "roll 2")
    await disk.ask(Priority.ACKNOWLEDGE, "acknowledge")
    assert disk.begun == busy
    for name in busy:
        await disk.end(name)
    assert disk.begun[URGENT_AT_ONCE:] == ["acknowledge", "roll 1", "roll 2", "read"]


async def test_work_in_the_background_goes_on_beside_urgent_work_and_takes_none_of_its_places() -> None:
    disk = Disk()
    await disk.ask(Priority.REMOVAL, "remove 1", "remove 2")
    await disk.ask(Priority.CHECKPOINT, "checkpoint")
    await disk.ask(Priority.ACKNOWLEDGE, *"abcdef")
    assert BACKGROUND_AT_ONCE == 1 and disk.begun == ["remove 1", *"abcd"]
    await disk.end("remove 1")
    assert disk.begun[-1] == "checkpoint", "it waited for a shorter time, but others wait for it"
    await disk.end("checkpoint")
    assert disk.begun[-1] == "remove 2"


async def test_a_caller_that_gives_up_keeps_no_place() -> None:
    disk = Disk()
    await disk.ask(Priority.ROLL, *"abcd")
    waiting, given_up = await disk.ask(Priority.ROLL, "waiting", "given up")
    last = (await disk.ask(Priority.ROLL, "last"))[0]
    given_up.cancel()
    await disk.end("a")
    waiting.cancel()  # while it runs
    await turns()
    assert disk.begun[4:] == ["waiting", "last"]
    await disk.end("last")
    assert await last == "last"
    # If a job gets a place in the same turn in which it is cancelled, the place goes to the next job.
    first, second, third = await disk.ask(Priority.ROLL, "first", "second", "third")
    assert disk.begun[-1] == "first"
    disk.running.pop("b").set_result(None)
    await asyncio.sleep(0)
    second.cancel()
    await turns()
    assert disk.begun[-1] == "third" and second.cancelled()
    assert not first.done() and not third.done()


async def test_a_failure_comes_back_and_frees_the_place() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop())
    for _ in range(2 * URGENT_AT_ONCE):
        with pytest.raises(ZeroDivisionError):
            await workers.on_disk("/a", Priority.ROLL, divmod, 1, 0)
    assert await workers.on_disk("/a", Priority.ROLL, divmod, 7, 3) == (2, 1)
    workers.close()


async def test_a_disk_that_hangs_keeps_no_other_disk_and_no_other_work_waiting() -> None:
    workers, gate = ThreadWorkers(asyncio.get_running_loop()), threading.Event()
    hanging = [
        asyncio.ensure_future(workers.on_disk("/a", priority, gate.wait, 30))
        for priority in Priority
        for _ in range(2 * THREADS)
    ]
    await asyncio.sleep(0)
    for priority in Priority:
        assert await asyncio.wait_for(workers.on_disk("/b", priority, divmod, 7, 3), 10) == (2, 1)
    assert await asyncio.wait_for(workers.run(divmod, 7, 3), 10) == (2, 1)
    gate.set()
    assert all(await asyncio.gather(*hanging))
    workers.close()
