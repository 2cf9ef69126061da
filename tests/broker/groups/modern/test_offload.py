"""Targets on a worker thread: one at a time, and the group learns of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.offload import Compute, TargetWorker
from ottla.server.tasks import Tasks
from ottla.server.workers import ThreadWorkers


async def computed(compute: Compute, times: int = 1) -> list[Sequence[CoordinatorRecord] | None]:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(loop)
    worker = TargetWorker(workers, Tasks(loop).spawn)
    found: asyncio.Queue[Sequence[CoordinatorRecord] | None] = asyncio.Queue()
    for _ in range(times):
        worker(compute, found.put_nowait)
    results = [await found.get() for _ in range(times)]
    workers.close()
    return results


async def test_targets_are_computed_on_a_thread_one_after_the_other() -> None:
    running: list[int] = []
    most: list[int] = []

    def compute() -> list[CoordinatorRecord]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        running.append(1)
        most.append(len(running))
        running.pop()
        return []

    assert await computed(compute, times=3) == [[], [], []]
    assert most == [1, 1, 1]


async def test_a_computation_that_fails_is_found_to_have_no_records(caplog: pytest.LogCaptureFixture) -> None:
    def compute() -> list[CoordinatorRecord]:
        raise ZeroDivisionError

    assert await computed(compute) == [None]
    assert "Could not compute the target of a group" in caplog.text
