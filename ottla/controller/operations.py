"""Operations of the active controller, counted and timed for its metrics.

An operation is one decision with its append and its replay; a decision that takes several turns is one in each of them.
"""

from __future__ import annotations

from ottla.server.clock import Clock
from ottla.server.metrics import Histogram

#: The histogram counts units of 1024 ns.
UNIT_BITS = 10
MS_PER_UNIT = (1 << UNIT_BITS) / 1_000_000


class Operations:
    """A context manager for each operation in turn. Operations do not overlap: nothing awaits in one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = 0
        self.started = 0
        self.times = Histogram()

    def __enter__(self) -> None:
        self.started += 1
        self._began_ns = self._clock.mono_ns()

    def __exit__(self, *_: object) -> None:
        self.times.add(self._clock.mono_ns() - self._began_ns >> UNIT_BITS)
