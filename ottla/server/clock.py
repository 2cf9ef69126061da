"""The only module that reads the clock. Other modules get a `Clock`, which the simulator implements with virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that has been set."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock time for timestamps; monotonic time for timeouts and durations."""

    def wall_ms(self) -> int: ...
    def mono_ms(self) -> int: ...
    def mono_ns(self) -> int: ...
    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle: ...


class SystemClock:
    """The machine's clocks and the event loop's timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The builtin itself, because every request calls it and a method around it would take longer.
        self.mono_ns: Callable[[], int] = time.monotonic_ns

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


async def pause(clock: Clock, delay_ms: float) -> None:
    over = asyncio.Event()
    timer = clock.call_later(delay_ms, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
