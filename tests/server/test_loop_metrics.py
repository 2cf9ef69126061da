"""The share of time in which the event loop is idle, from scrape to scrape."""

from __future__ import annotations

import resource

import pytest

from ottla.server.loop_metrics import POOLS, LoopMetrics
from tests.manual_clock import ManualClock


def test_the_loop_is_idle_for_the_time_in_which_its_thread_used_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [0.0]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage((used[0], 0.0, *usage[2:])))
    clock = ManualClock()
    metrics = LoopMetrics(clock)

    def idle() -> set[float]:
        values = {family.name: family.samples[0].value for family in metrics()}
        return {values[f"{name}{spelling}"] for name, _ in POOLS for spelling in ("_percent", "percent")}

    assert idle() == {1.0}, "nothing to compare with yet"
    clock.advance(1_000)
    used[0] = 0.25
    assert idle() == {0.75}
    clock.advance(1_000)
    used[0] = 2.0  # more than the time that has passed: clocks differ
    assert idle() == {0.0}
    assert idle() == {0.0}, "no time has passed"
