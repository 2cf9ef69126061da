"""The share of time in which the event loop is idle, from scrape to scrape."""

from __future__ import annotations

import resource

import pytest

from ottla.server.loop_watch import CONTROLLER_THREAD, LOADER_THREAD, POOLS, LoopMetrics
from tests.manual_clock import ManualClock


def test_the_loop_is_idle_for_the_time_in_which_its_thread_used_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [0.0]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage((used[0], 0.0, *usage[2:])))
    clock = ManualClock()
    metrics = LoopMetrics(clock, is_controller=True)

    def idle() -> set[float]:
        values = {family.name: family.samples[0].value for family in metrics()}
        percents = {values[f"{name}{spelling}"] for name in POOLS for spelling in ("_percent", "percent")}
        return percents | {values[CONTROLLER_THREAD], values[LOADER_THREAD]}

    assert idle() == {1.0}, "nothing to compare with yet"
    clock.advance(1_000)
    used[0] = 0.25
    assert idle() == {0.75}
    clock.advance(1_000)
    used[0] = 2.0  # more than the time that has passed: clocks differ
    assert idle() == {0.0}
    assert idle() == {0.0}, "no time has passed"


def test_a_broker_without_a_controller_has_no_thread_of_the_controllers_events() -> None:
    names = {family.name for family in LoopMetrics(ManualClock())()}
    assert LOADER_THREAD in names
    assert CONTROLLER_THREAD not in names
