"""The pauses before a dead process starts again."""

from __future__ import annotations

from ottla.processes.supervisor import LONGEST_S, QUIET_S, Backoff


def test_a_process_that_dies_at_once_waits_twice_as_long_each_time_up_to_a_limit() -> None:
    backoff = Backoff()
    pauses = [backoff.after(0.1) for _ in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S]
    assert all(backoff.after(0.1) == LONGEST_S for _ in range(5_000))


def test_after_a_quiet_minute_a_death_is_the_first_again() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(0.1)
    assert backoff.after(QUIET_S) == 0.5
    assert backoff.after(QUIET_S - 1) == 1
