"""The watch over the event loop: what it counts, and what it names as the cause."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from ottla.server.loop_watch import LoopWatch
from tests.server.tiny_node import until

LIMIT_S = 10


@pytest.fixture
async def watch() -> Iterator[LoopWatch]:
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    yield watch
    watch.stop()


def holds_the_loop(watch: LoopWatch) -> None:
    """Hold the loop until the watch has noticed, however long that takes."""
    end = time.monotonic() + LIMIT_S
    while watch.caught is None and time.monotonic() < end:
        time.sleep(0.001)


async def line_of(watch: LoopWatch, caplog: pytest.LogCaptureFixture, begin: Callable[[], object]) -> str:
    """Return the line about `holds_the_loop`, which `begin` lets the loop run.

    A busy machine may hold the loop at the same moment, or in the second before, so that this line is missing: then it is run
    again.
    """
    with caplog.at_level(logging.WARNING, "ottla.server.loop_watch"):
        for _ in range(LIMIT_S):
            held = watch.held
            begin()
            await until(lambda before=held: watch.held > before)
            for line in caplog.messages:
                if "holds_the_loop" in line:
                    return line
            await asyncio.sleep(1)
    raise AssertionError(caplog.messages)


def values(watch: LoopWatch) -> dict[str, float]:
    return {family.name: family.samples[-1].value for family in watch()}


async def test_a_function_that_holds_the_loop_is_named_in_the_log(
    watch: LoopWatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = await line_of(watch, caplog, lambda: asyncio.get_running_loop().call_soon(holds_the_loop, watch))
    assert "The event loop was held for" in line
    assert "server/test_loop_watch.py" in line


async def test_a_task_that_holds_the_loop_is_named_too(watch: LoopWatch, caplog: pytest.LogCaptureFixture) -> None:
    async def held() -> None:
        holds_the_loop(watch)

    tasks: list[asyncio.Task[None]] = []  # asyncio itself keeps only weak references to tasks

    def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(held(), name="loads coordinators"))

    assert "(task loads coordinators)" in await line_of(watch, caplog, begin)
    await asyncio.gather(*tasks)


async def test_the_gauges_are_of_the_time_since_the_last_scrape(watch: LoopWatch) -> None:
    asyncio.get_running_loop().call_soon(holds_the_loop, watch)
    await until(lambda: watch.held > 0)
    first = values(watch)
    assert first["ottla_event_loop_lag_ms_max"] > 100 and first["ottla_event_loop_held"] == watch.held
    again = values(watch)
    assert again["ottla_event_loop_lag_ms_max"] == 0, "no tick has come since"
    assert again["ottla_event_loop_held"] == watch.held, "a counter goes on"
