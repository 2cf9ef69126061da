"""The system's clocks, and the world that is made of them and the rest."""

from __future__ import annotations

import asyncio
import time

from ottla.server.clock import SystemClock
from ottla.server.world import RealWorld
from tests.server.tiny_node import until


async def test_clocks_return_the_time_in_their_units() -> None:
    clock = SystemClock(asyncio.get_running_loop())
    before_ms = time.time_ns() // 1_000_000
    assert before_ms <= clock.wall_ms() <= time.time_ns() // 1_000_000
    before_ms = clock.mono_ms()
    assert before_ms <= clock.mono_ns() // 1_000_000 <= clock.mono_ms()
    assert clock.mono_ns() <= clock.mono_ns()


async def test_a_timer_fires_after_its_time_and_not_when_cancelled() -> None:
    clock = SystemClock(asyncio.get_running_loop())
    fired: list[int] = []
    start_ms = clock.mono_ms()
    clock.call_later(20, lambda: fired.append(clock.mono_ms()))
    clock.call_later(10, lambda: fired.append(-1)).cancel()
    await until(lambda: fired)
    assert fired[0] - start_ms >= 18
    assert len(fired) == 1


async def test_two_worlds_do_not_share_their_chance() -> None:
    first, second = RealWorld(asyncio.get_running_loop()), RealWorld(asyncio.get_running_loop())
    assert first.world.rng.random() != second.world.rng.random()
    task = first.world.spawn(asyncio.sleep(60), "sleeper")
    await first.close()
    await second.close()
    assert task.cancelled()
