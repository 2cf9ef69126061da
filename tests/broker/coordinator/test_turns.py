"""Steps of many shards in turns of the event loop: a bounded number, a bounded time, and in their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.coordinator.turns import RECORDS_BETWEEN_CLOCKS, TURN_NS, TURN_RECORDS, TURN_TIMERS, ShardTurns
from tests.manual_clock import ManualClock


class Work:
    """Counts its steps."""

    def __init__(self, steps: int) -> None:
        self.done = 0
        self.error: Exception | None = None
        self.is_over = False
        self._steps = steps

    def steps(self) -> Iterator[None]:
        for _ in range(self._steps):
            self.done += 1
            yield

    def end(self, error: Exception | None) -> None:
        self.is_over, self.error = True, error


@pytest.mark.parametrize(("kind", "steps_max"), [("loads", TURN_RECORDS), ("timers", TURN_TIMERS)])
def test_two_shards_share_the_steps_of_a_turn_and_the_first_one_is_done_first(kind: str, steps_max: int) -> None:
    clock = ManualClock()
    queue = getattr(ShardTurns(clock), kind)
    first, second = Work(steps_max + 10), Work(100)
    for work in (first, second):
        queue.add(work.steps(), work.end)
    assert (first.done, second.done) == (steps_max, 0)
    clock.turn()
    assert (first.done, second.done) == (steps_max + 10, 100)
    assert first.is_over and second.is_over


@pytest.mark.parametrize(("kind", "between_clocks"), [("loads", RECORDS_BETWEEN_CLOCKS), ("timers", 1)])
def test_a_turn_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch, kind: str, between_clocks: int) -> None:
    clock = ManualClock()
    monkeypatch.setattr(clock, "mono_ns", iter(range(0, 1 << 60, TURN_NS // 5)).__next__)
    work = Work(200)
    getattr(ShardTurns(clock), kind).add(work.steps(), work.end)
    assert 0 < work.done <= 5 * between_clocks


def test_an_error_ends_its_work_and_the_next_one_goes_on() -> None:
    def fails() -> Iterator[None]:
        yield
        raise ValueError("a mistake")

    queue = ShardTurns(ManualClock()).loads
    broken, whole = Work(0), Work(3)
    queue.add(fails(), broken.end)
    queue.add(whole.steps(), whole.end)
    assert isinstance(broken.error, ValueError)
    assert whole.is_over and whole.error is None


def test_work_that_is_added_by_the_end_of_other_work_waits_for_it() -> None:
    queue = ShardTurns(ManualClock()).loads
    first, second = Work(1), Work(1)

    def ended(error: Exception | None) -> None:
        queue.add(second.steps(), second.end)
        assert second.done == 0, "the first one's end is not over yet"
        first.end(error)

    queue.add(first.steps(), ended)
    assert first.is_over and second.is_over
