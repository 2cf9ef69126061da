"""A wall clock that is set: deletion by age waits until the jump is confirmed."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.scheduled_tasks import JUMP_MS, ClockJumps
from tests.manual_clock import ManualClock

DAY_MS = 86_400_000
HOLD_MS = 3_600_000


class Watched:
    """A clock that the test sets, and the node's view of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.jumps = ClockJumps(self.clock, HOLD_MS)

    def set(self, by_ms: int) -> None:
        self.clock.wall_at_start_ms += by_ms

    @property
    def held_ms(self) -> int:
        """Return how far the time for deletion is behind the wall clock."""
        return self.clock.wall_ms() - self.jumps.expiry_ms()

    @property
    def shown_ms(self) -> float:
        [family] = self.jumps.metrics()
        return family.samples[0].value


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("early_ms", [0, 1, -1])
def test_a_jump_is_said_in_whole_seconds_although_the_clocks_are_read_one_after_the_other(
    watched: Watched, caplog: pytest.LogCaptureFixture, early_ms: int
) -> None:
    watched.set(10 * DAY_MS - early_ms)
    watched.jumps.look()
    assert "The wall clock jumped by +864000 s" in caplog.text


def test_a_jump_ahead_is_a_warning_and_deletes_nothing_for_an_hour(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched.clock.advance(5_000)
    watched.set(10 * DAY_MS)
    assert watched.held_ms == 10 * DAY_MS and watched.shown_ms == 10 * DAY_MS
    assert "The wall clock jumped by +864000 s" in caplog.text
    watched.clock.advance(HOLD_MS - 1)
    assert watched.held_ms == 10 * DAY_MS
    watched.clock.advance(1)
    assert watched.held_ms == 0 and watched.shown_ms == 0
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2


def test_a_clock_that_comes_back_is_followed_at_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watched.set(10 * DAY_MS)
    assert watched.held_ms
    watched.set(-10 * DAY_MS)
    assert watched.held_ms == 0 and watched.shown_ms == 0
    assert "has come back" in caplog.text


def test_after_a_jump_back_nothing_counts_as_older_than_the_clock_says(watched: Watched) -> None:
    """The clock was ahead since the node's start, and is right now: records of today must not count as ten days old."""
    watched.set(-10 * DAY_MS)
    assert watched.held_ms == 0 and watched.shown_ms == -10 * DAY_MS
    watched.clock.advance(HOLD_MS)
    assert watched.held_ms == 0 and watched.shown_ms == 0


def test_a_second_jump_waits_for_an_hour_of_its_own(watched: Watched) -> None:
    watched.set(DAY_MS)
    assert watched.held_ms == DAY_MS
    watched.clock.advance(HOLD_MS // 2)
    watched.set(DAY_MS)
    assert watched.held_ms == 2 * DAY_MS
    watched.clock.advance(HOLD_MS // 2)
    assert watched.held_ms == 2 * DAY_MS
    watched.clock.advance(HOLD_MS // 2)
    assert watched.held_ms == 0


def test_a_time_servers_corrections_are_followed(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        watched.set(JUMP_MS)
        assert watched.held_ms == 0
        watched.clock.advance(1_000)
    assert not caplog.records
