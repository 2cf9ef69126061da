"""The simulator's event loop at its end."""

from __future__ import annotations

import asyncio
import gc
import warnings

from tests.sim.loop import Lane, run


async def work() -> None:
    await asyncio.sleep(1)


async def stop(turns: int) -> None:
    try:
        await asyncio.sleep(1)
    finally:
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.gather(asyncio.ensure_future(work()))  # like a node that closes its logs on several workers


async def main(tasks: list[asyncio.Task[None]]) -> None:
    """Leave tasks behind, which the caller keeps as a node keeps its own tasks."""
    lane = Lane("of a process")
    tasks += [asyncio.ensure_future(stop(turns)) for turns in range(5)]
    await asyncio.sleep(0)
    lane.closed = True
    tasks += [lane.context.run(asyncio.ensure_future, work())]
    await asyncio.sleep(0)


def test_tasks_that_a_history_left_without_a_turn_warn_of_nothing_later() -> None:
    tasks: list[asyncio.Task[None]] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run(main(tasks))
        tasks.clear()
        gc.collect()
    assert [str(each.message) for each in seen] == []
