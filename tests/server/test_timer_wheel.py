"""The timer wheel: never early, hardly late, and empty when everything was answered in time."""

from __future__ import annotations

import random

import pytest

from ottla.server.timer_wheel import TICK_MS, TimerWheel


class Handle:
    def __init__(self, at_ms: float, callback: object) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.handles: list[Handle] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def call_later(self, delay_ms: float, callback: object) -> Handle:
        handle = Handle(self.now_ms + delay_ms, callback)
        self.handles.append(handle)
        return handle

    @property
    def armed(self) -> list[Handle]:
        self.handles = [handle for handle in self.handles if not handle.cancelled]
        return self.handles

    def advance(self, to_ms: int) -> None:
        while due := sorted((h for h in self.armed if h.at_ms <= to_ms), key=lambda h: h.at_ms):
            self.now_ms = max(self.now_ms, int(due[0].at_ms))
            due[0].cancelled = True
            due[0].callback()
        self.now_ms = to_ms


class Entry:
    def __init__(self, clock: VirtualClock, due_ms: int) -> None:
        self.clock = clock
        self.due_ms = due_ms
        self.expired_ms: int | None = None

    def expire(self) -> None:
        self.expired_ms = self.clock.now_ms


def test_entries_expire_in_time_and_never_early() -> None:
    clock, rng = VirtualClock(), random.Random(7)
    wheel = TimerWheel(clock)
    entries = []
    for _ in range(2000):
        delay_ms = rng.randrange(30_000)
        entry = Entry(clock, clock.now_ms + delay_ms)
        wheel.add(entry, delay_ms)
        entries.append(entry)
        clock.advance(clock.now_ms + rng.randrange(3))
        assert len(clock.armed) == 1
    clock.advance(clock.now_ms + 31_000)
    assert all(entry.expired_ms is not None and 0 <= entry.expired_ms - entry.due_ms <= TICK_MS for entry in entries)
    assert len(wheel) == 0
    assert not clock.armed


def test_an_entry_taken_back_leaves_nothing_behind() -> None:
    clock = VirtualClock()
    wheel = TimerWheel(clock)
    entries = [Entry(clock, 0) for _ in range(1000)]
    slots = [wheel.add(entry, 30_000) for entry in entries]
    assert len(wheel) == 1000
    for entry, slot in zip(entries, slots, strict=True):
        wheel.remove(entry, slot)
    assert len(wheel) == 0
    clock.advance(40_000)
    assert all(entry.expired_ms is None for entry in entries)
    wheel.remove(entries[0], slots[0])  # once more does no harm


def test_an_earlier_deadline_is_met_though_a_later_one_came_first() -> None:
    clock = VirtualClock()
    wheel = TimerWheel(clock)
    late, early = Entry(clock, 6000), Entry(clock, 1100)
    wheel.add(late, 5000)
    wheel.add(early, 100)
    clock.advance(1200)
    assert early.expired_ms is not None
    assert late.expired_ms is None


def test_an_entry_may_add_itself_again_when_it_expires() -> None:
    clock = VirtualClock()
    wheel = TimerWheel(clock)
    times: list[int] = []

    class Again:
        def expire(self) -> None:
            times.append(clock.now_ms)
            if len(times) < 3:
                wheel.add(self, 50)

    wheel.add(Again(), 50)
    clock.advance(2000)
    assert len(times) == 3


def test_a_closed_wheel_expires_nothing() -> None:
    clock = VirtualClock()
    wheel = TimerWheel(clock)
    entry = Entry(clock, 1010)
    wheel.add(entry, 10)
    wheel.close()
    clock.advance(5000)
    assert entry.expired_ms is None


def test_an_entry_that_fails_keeps_no_other_of_its_tick_from_expiring(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    wheel = TimerWheel(clock)
    entries = [Entry(clock, 1_100) for _ in range(3)]
    for entry in entries:
        wheel.add(entry, 100)

    def broken() -> None:
        raise ZeroDivisionError

    entries[0].expire = broken
    clock.advance(1_200)
    assert [entry.expired_ms is not None for entry in entries] == [False, True, True]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
