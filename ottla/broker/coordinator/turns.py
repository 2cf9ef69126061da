"""Work of all coordinator shards of a broker in turns of the event loop, a bounded time in each.

Sweeps bound the work of one shard (`broker/coordinator/timers.py`); this bounds what 50 shards begin in the same turn. With a
loader for each shard, the take-over of 17 partitions of 1 MB stopped the loop for 3.4 s, and a quorum's fetch timeout is 2 s.
The sessions of 5,000 members that ended together held it for 0.7 s, before timers had this budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ottla.server.clock import Clock

# The limits of one queue in one turn of the loop, whichever is reached first: a record takes about 6 us, a timer up to 150 us.
TURN_NS = 5_000_000
TURN_RECORDS = 1_000
TURN_TIMERS = 500
# The number of records that are loaded between two reads of the clock.
RECORDS_BETWEEN_CLOCKS = 16


class TurnQueue:
    """Does one thing after the other, in steps; the steps of one turn of the event loop never take more than the budget."""

    def __init__(self, clock: Clock, steps_max: int, steps_between_clocks: int) -> None:
        self._steps_max = steps_max
        self._clock = clock
        self._steps_between_clocks = steps_between_clocks
        self._waiting: deque[tuple[Iterator[None], Callable[[Exception | None], None]]] = deque()
        self._turn_is_due = self._is_running = False
        self._steps_left = steps_max
        self._ns_left = TURN_NS

    def add(self, steps: Iterator[None], done: Callable[[Exception | None], None]) -> None:
        """Do all steps and call `done`, with the error if there is one: at once if this turn's budget suffices."""
        self._waiting.append((steps, done))
        if not self._is_running:
            self._do_some()

    def _do_some(self) -> None:
        self._is_running = True
        while self._waiting and self._steps_left > 0 and self._ns_left > 0:
            began_ns = self._clock.mono_ns()
            self._advance()
            self._ns_left -= self._clock.mono_ns() - began_ns
        self._is_running = False
        if not self._turn_is_due:
            self._turn_is_due = True
            self._clock.call_later(0, self._next_turn)

    def _advance(self) -> None:
        """Do a few steps of the first in the queue, and end it if these were the last."""
        steps, done = self._waiting[0]
        error: Exception | None = None
        try:
            for _ in range(min(self._steps_between_clocks, self._steps_left)):
                self._steps_left -= 1
                next(steps)
            return
        except StopIteration:
            pass
        except Exception as failure:
            error = failure
        self._waiting.popleft()
        done(error)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._steps_left, self._ns_left = self._steps_max, TURN_NS
        if self._waiting:
            self._do_some()


class ShardTurns:
    """The turns of all shards of a broker, whichever coordinator they belong to: of their loading, and of their timers."""

    def __init__(self, clock: Clock) -> None:
        self.loads = TurnQueue(clock, TURN_RECORDS, RECORDS_BETWEEN_CLOCKS)
        self.timers = TurnQueue(clock, TURN_TIMERS, 1)
