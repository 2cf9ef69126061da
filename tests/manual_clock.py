"""A clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ottla.server.clock import Clock, TimerHandle


class Timer(TimerHandle):
    """A callback that is due at a time. A cancelled timer is skipped."""

    def __init__(self, at_ms: float, number: int, callback: Callable[[], object]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False
        self._number = number

    def __lt__(self, other: Timer) -> bool:
        """Compare by time, then by the order in which the timers were set."""
        return (self.at_ms, self._number) < (other.at_ms, other._number)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock(Clock):
    """A clock whose monotonic time starts at 0, and whose wall time starts where the test wants. `advance` makes the calls that
    are due, in order.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = 0
        self.wall_at_start_ms = wall_ms
        self._timers: list[Timer] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self.wall_at_start_ms + self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> Timer:
        self._count += 1
        timer = Timer(self.now_ms + delay_ms, self._count, callback)
        heappush(self._timers, timer)
        return timer

    @property
    def armed(self) -> list[Timer]:
        return sorted(timer for timer in self._timers if not timer.cancelled)

    def call(self, timer: Timer) -> None:
        """Call one timer, even if it is not due."""
        timer.cancel()
        timer.callback()

    def advance(self, by_ms: int) -> None:
        self.advance_to(self.now_ms + by_ms)

    def advance_to(self, to_ms: int) -> None:
        while self._timers and self._timers[0].at_ms <= to_ms:
            timer = heappop(self._timers)
            self.now_ms = max(self.now_ms, int(timer.at_ms))
            if not timer.cancelled:
                timer.callback()
        self.now_ms = max(self.now_ms, to_ms)  # a callback may have moved it further

    def turn(self) -> None:
        """Run one turn of a loop: the timers that are due now, and none that is set during the turn."""
        for _ in [timer for timer in self._timers if timer.at_ms <= self.now_ms]:
            timer = heappop(self._timers)
            if not timer.cancelled:
                timer.callback()
