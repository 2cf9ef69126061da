"""The bytes that a throttled side may take, by the clock alone."""

from __future__ import annotations

import pytest

from ottla.broker.replication.throttle import UNLIMITED, Throttle, is_throttled


class Clock:
    def __init__(self) -> None:
        self.now_ms = 10_000

    def mono_ms(self) -> int:
        return self.now_ms


def throttle(bytes_per_second: int) -> tuple[Throttle, Clock]:
    clock = Clock()
    made = Throttle(clock)
    made.bytes_per_second = bytes_per_second
    return made, clock


def test_without_a_limit_nothing_is_held_back() -> None:
    made, _ = throttle(UNLIMITED)
    made.record(1 << 40)
    assert made.pause_ms() == 0


def test_what_was_taken_at_once_is_paid_with_a_pause_until_the_rate_is_kept() -> None:
    made, clock = throttle(1_000)
    made.record(5_000)
    assert made.pause_ms() == 4_000
    clock.now_ms += 4_999
    assert made.pause_ms() == 1
    clock.now_ms += 1
    assert made.pause_ms() == 0


@pytest.mark.parametrize("chunk", [100, 1_000, 7_000])
def test_over_a_minute_no_more_is_taken_than_the_rate_allows_and_one_chunk(chunk: int) -> None:
    made, clock = throttle(1_000)
    taken = 0
    end_ms = clock.now_ms + 60_000
    while clock.now_ms < end_ms:
        if made.pause_ms() == 0:
            made.record(chunk)
            taken += chunk
        clock.now_ms += 50
    assert 50_000 <= taken <= 61_000 + chunk


def test_a_limit_of_zero_stops_and_a_raised_one_goes_on() -> None:
    made, _ = throttle(0)
    assert made.pause_ms() > 0
    made.bytes_per_second = 10
    assert made.pause_ms() == 0


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [("", False), ("*", True), ("0:1,3:2", True), (" 3:2 ", True), ("3:1,2:2", False), ("13:2", False)],
)
def test_a_topics_list_names_this_replica(replicas: str, expected: bool) -> None:
    assert is_throttled(replicas, 3, 2) is expected
