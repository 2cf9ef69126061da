"""The timer wheel: entries never expire early, hardly ever late, and it is empty when everything was answered in time."""

from __future__ import annotations

import random

import pytest

from ottla.server.clock import TICK_MS, Deadline, TimerWheel
from tests.manual_clock import ManualClock


class Entry:
    def __init__(self, clock: ManualClock, due_ms: int) -> None:
        self.clock = clock
        self.due_ms = due_ms
        self.expired_ms: int | None = None

    def expire(self) -> None:
        self.expired_ms = self.clock.now_ms


def test_entries_expire_in_time_and_never_early() -> None:
    clock, rng = ManualClock(), random.Random(7)
    wheel = TimerWheel(clock)
    entries = []
    for _ in range(2000):
        delay_ms = rng.randrange(30_000)
        entry = Entry(clock, clock.now_ms + delay_ms)
        wheel.add(entry, delay_ms)
        entries.append(entry)
        clock.advance(rng.randrange(3))
        assert len(clock.armed) == 1
    clock.advance(31_000)
    assert all(entry.expired_ms is not None and 0 <= entry.expired_ms - entry.due_ms <= TICK_MS for entry in entries)
    assert len(wheel) == 0
    assert not clock.armed


def test_an_entry_taken_back_leaves_nothing_behind() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    entries = [Entry(clock, 0) for _ in range(1000)]
    slots = [wheel.add(entry, 30_000) for entry in entries]
    assert len(wheel) == 1000
    for entry, slot in zip(entries, slots, strict=True):
        wheel.remove(entry, slot)
    assert len(wheel) == 0
    clock.advance(39_000)
    assert all(entry.expired_ms is None for entry in entries)
    wheel.remove(entries[0], slots[0])  # removing it once more does no harm


def test_an_earlier_deadline_is_met_though_a_later_one_came_first() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    late, early = Entry(clock, 5000), Entry(clock, 100)
    wheel.add(late, 5000)
    wheel.add(early, 100)
    clock.advance(200)
    assert early.expired_ms is not None
    assert late.expired_ms is None


def test_an_entry_may_add_itself_again_when_it_expires() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    times: list[int] = []

    class Again:
        def expire(self) -> None:
            times.append(clock.now_ms)
            if len(times) < 3:
                wheel.add(self, 50)

    wheel.add(Again(), 50)
    clock.advance(1000)
    assert len(times) == 3


def test_a_closed_wheel_expires_nothing() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    entry = Entry(clock, 10)
    wheel.add(entry, 10)
    wheel.close()
    clock.advance(4000)
    assert entry.expired_ms is None


def test_an_entry_that_fails_keeps_no_other_of_its_tick_from_expiring(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    entries = [Entry(clock, 100) for _ in range(3)]
    for entry in entries:
        wheel.add(entry, 100)

    def broken() -> None:
        raise ZeroDivisionError

    entries[0].expire = broken
    clock.advance(200)
    assert [entry.expired_ms is not None for entry in entries] == [False, True, True]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


class Wait(Entry):
    """An operation that waits until it is done, or its time is over."""

    is_waiting = True

    def expire(self) -> None:
        super().expire()
        self.is_waiting = False


def test_waits_that_follow_each_other_expire_in_time_and_share_one_entry_of_the_wheel() -> None:
    clock, rng = ManualClock(), random.Random(11)
    wheel = TimerWheel(clock)
    deadline = Deadline(clock, wheel)
    expired = 0
    for _ in range(500):
        delay_ms = rng.choice((0, 10, 100, 500, 500, 500))
        wait = Wait(clock, clock.now_ms + delay_ms)
        deadline.begin(wait, wait.due_ms)
        assert len(wheel) == 1
        if rng.randrange(3):
            clock.advance(rng.randrange(delay_ms + 1))
            assert wait.expired_ms is None or wait.expired_ms >= wait.due_ms
            wait.is_waiting = False
        else:
            clock.advance(delay_ms + TICK_MS)
            assert wait.expired_ms is not None and 0 <= wait.expired_ms - wait.due_ms <= TICK_MS
            expired += 1
    assert expired > 100
    clock.advance(600)
    assert len(wheel) == 0 and not clock.armed, "the last wait is done, and the entry gone"


def test_a_wait_that_is_done_never_expires_and_a_closed_deadline_has_no_entry() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    deadline = Deadline(clock, wheel)
    done, forgotten = Wait(clock, 100), Wait(clock, 200)
    deadline.begin(done, clock.now_ms + 100)
    done.is_waiting = False
    clock.advance(50)
    deadline.begin(forgotten, clock.now_ms + 200)
    deadline.close()
    assert len(wheel) == 0
    clock.advance(1000)
    assert done.expired_ms is None and forgotten.expired_ms is None
