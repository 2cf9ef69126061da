"""Turns of the event loop of a coordinator on a log in memory, measured by CPU time.

A node's bound is 50 ms a turn. The tests' is looser, because two cores run the whole suite.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

from tests.manual_clock import ManualClock, Timer

TURN_MAX_NS = 80_000_000


class WorkingClock(ManualClock):
    """A clock whose nanoseconds are CPU time of this thread, which is what budgets of turns are for. Each callback is a turn.

    The garbage collector does not run during a turn: a full collection of pytest's heap takes longer than any turn may.
    """

    longest_ns = 0

    def mono_ns(self) -> int:
        return time.thread_time_ns()

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> Timer:
        return super().call_later(delay_ms, lambda: self.run(callback))

    def run(self, turn: Callable[[], object]) -> None:
        gc.disable()
        try:
            began_ns = time.thread_time_ns()
            turn()
            self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began_ns)
        finally:
            gc.enable()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WorkingClock:
    """Return the clock of the harnesses that the test makes."""
    clock = WorkingClock()
    monkeypatch.setattr("tests.broker.coordinator.harness.ManualClock", lambda: clock)
    return clock
