"""The timers of a coordinator shard: each runs once, when it is due, however often it was moved."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.timers import DEAD_ENTRIES_MAX, Timers


class Clocked:
    """Timers with a clock that the test moves; `ran` names those that were due."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ran: list[str] = []
        self.timers = Timers(lambda: self.now_ms, lambda wake_up_ms: None)

    def schedule(self, key: str, delay_ms: int) -> None:
        def callback() -> Outcome:
            self.ran.append(key)
            return Outcome()

        self.timers.schedule(key, delay_ms, callback)

    def run_due(self, now_ms: int) -> list[str]:
        self.now_ms = now_ms
        self.ran = []
        while (due := self.timers.pop_due()) is not None:
            due[1]()
        return self.ran


def test_timers_run_in_the_order_of_their_deadlines_and_only_once() -> None:
    clocked = Clocked()
    for key, delay_ms in (("late", 30), ("early", 10), ("cancelled", 5), ("postponed", 10)):
        clocked.schedule(key, delay_ms)
    clocked.timers.cancel("cancelled")
    assert clocked.timers.postpone("postponed", 100) and not clocked.timers.postpone("unknown", 100)
    assert clocked.run_due(9) == []
    assert clocked.run_due(40) == ["early", "late"]
    assert clocked.run_due(99) == []
    assert clocked.run_due(100) == ["postponed"]
    assert clocked.timers.next_wake_up_ms() is None


def test_cancelled_timers_leave_a_bounded_number_of_dead_entries_behind() -> None:
    clocked = Clocked()
    for number in range(4 * DEAD_ENTRIES_MAX):
        clocked.schedule(f"member {number}", 10_000)
    for number in range(4 * DEAD_ENTRIES_MAX - 1):
        clocked.timers.cancel(f"member {number}")
    assert len(clocked.timers) == 1
    assert len(clocked.timers._heap) <= DEAD_ENTRIES_MAX
    assert clocked.run_due(10_000) == [f"member {4 * DEAD_ENTRIES_MAX - 1}"]
