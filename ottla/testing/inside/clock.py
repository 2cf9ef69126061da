"""Clocks that a test moves.

The session clock jumps, and its timers with it; of the node's own clock only the wall-clock time can be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.server.clock import SystemClock, TimerHandle


class NodeClock(SystemClock):
    """The machine's monotonic clock, which nodes use for each other, and a wall clock that can be wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class SessionClock:
    """The clock of sessions, transactions, retention and compaction. `advance_to` moves it, and timers that become due run."""

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._advanced_ms = 0
        self._timers: dict[_Timer, None] = {}

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def mono_ms(self) -> int:
        return self._clock.mono_ms() + self._advanced_ms

    def mono_ns(self) -> int:
        return self._clock.mono_ns() + self._advanced_ms * 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle:
        timer = _Timer(self, self.mono_ms() + delay_ms, callback)
        self._timers[timer] = None
        timer.arm(self._clock, delay_ms)
        return timer

    def advance_to(self, advanced_ms: int) -> None:
        """Move to this far ahead of the machine's clock.

        Timers keep their order: of two that are due, the earlier one runs first.
        """
        if advanced_ms == self._advanced_ms:
            return
        self._advanced_ms = advanced_ms
        now_ms = self.mono_ms()
        for timer in sorted(self._timers, key=lambda timer: timer.due_ms):
            timer.arm(self._clock, max(0, timer.due_ms - now_ms))

    def over(self, timer: _Timer) -> None:
        self._timers.pop(timer, None)


class _Timer:
    """A timer of the session clock. It uses a timer of the event loop, which is set again when the clock moves."""

    __slots__ = ("_callback", "_clock", "_handle", "due_ms")

    def __init__(self, clock: SessionClock, due_ms: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._callback = callback
        self._handle: TimerHandle | None = None
        self.due_ms = due_ms

    def arm(self, clock: SystemClock, delay_ms: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = clock.call_later(delay_ms, self._run)

    def cancel(self) -> None:
        self._clock.over(self)
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        self._clock.over(self)
        self._callback()
