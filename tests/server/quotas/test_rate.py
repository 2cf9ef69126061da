"""Bucket and rate: one property for each promise, with any arrivals."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.quotas.rate import Bucket, Rate, Windows

SECONDS = 30


def produced(limit: float, size: int, clients: int, *, warm_s: int = 0) -> float:
    """Clients that send whenever they are not muted, at 100 MB/s together: what passes in 30 s, as a share of the quota."""
    bucket, passed, free_ms = Bucket(1_000), 0, 0.0
    due = [(0.0, number) for number in range(clients)]
    while due[0][0] < (warm_s + SECONDS) * 1_000:
        at_ms, number = heapq.heappop(due)
        free_ms = max(at_ms, free_ms) + size / 100_000
        bucket.take(size, limit, int(free_ms))
        if free_ms >= warm_s * 1_000:
            passed += size
        heapq.heappush(due, (free_ms + bucket.wait_ms(int(free_ms)), number))
    return passed / SECONDS / limit


@pytest.mark.parametrize("clients", [1, 20])
@pytest.mark.parametrize(("limit", "size"), [(1e6, 16_384), (1e7, 65_536), (5e5, 4_096)])
def test_over_thirty_seconds_the_rate_is_within_ten_percent_of_the_quota(limit: float, size: int, clients: int) -> None:
    assert 0.9 <= produced(limit, size, clients) <= 1.1
    assert 0.98 <= produced(limit, size, clients, warm_s=11) <= 1.02


@given(
    limit=st.floats(1, 1e9),
    arrivals=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 10_000_000)), min_size=1, max_size=50),
)
def test_who_waits_for_what_it_owes_gets_no_more_than_the_limit_and_one_burst(
    limit: float, arrivals: list[tuple[int, int]]
) -> None:
    bucket, now_ms, taken, last = Bucket(1_000), 0.0, 0, 0
    for pause_ms, value in arrivals:
        now_ms += pause_ms + bucket.wait_ms(now_ms + pause_ms)
        bucket.take(value, limit, now_ms)
        taken, last = taken + value, value
    # The last bytes are not delayed any more, and waits are whole milliseconds.
    assert taken - last <= limit * (now_ms + 1_000 + len(arrivals)) / 1_000 * 1.000001


@given(limit=st.floats(1, 1e9), values=st.lists(st.integers(1, 10_000_000), max_size=20))
def test_after_the_wait_nothing_is_owed(limit: float, values: list[int]) -> None:
    bucket = Bucket(1_000)
    for value in values:
        bucket.take(value, limit, 0)
    assert bucket.wait_ms(bucket.wait_ms(0) + 1) == 0


def test_a_new_limit_leaves_the_time_that_is_owed() -> None:
    bucket = Bucket(0)
    bucket.take(2_000, 1_000, 0)
    bucket.take(10, 10, 0)
    assert bucket.wait_ms(0) == 3_000


def test_a_bucket_holds_no_more_than_its_burst_after_a_long_time() -> None:
    bucket = Bucket(2_000)
    assert bucket.tokens(10, 1e9) == 20
    bucket.take(25, 10, 1e9)
    assert bucket.tokens(10, 1e9) == -5
    assert bucket.wait_ms(1e9) == 500


def test_a_rate_divides_by_all_windows_but_one_at_first_as_kafkas() -> None:
    rate = Rate(Windows(11, 1_000))
    rate.record(1_000, 0)
    assert rate.per_second(0) == 100
    assert rate.per_second(10_500) == pytest.approx(1_000 / 10.5)
    assert rate.per_second(11_000) == 0
    assert rate.is_idle(11_000)


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 1_000)), max_size=60), st.integers(1, 12))
def test_a_rate_counts_each_event_for_all_windows_and_none_for_longer(events: list[tuple[int, int]], num: int) -> None:
    rate, now_ms, history = Rate(Windows(num, 1_000)), 0, []
    for pause_ms, value in events:
        now_ms += pause_ms
        rate.record(value, now_ms)
        history.append((now_ms, value))
    shown = rate.per_second(now_ms)
    recent = sum(value for at_ms, value in history if now_ms - at_ms < num * 1_000)
    all_of_it = sum(value for at_ms, value in history if now_ms - at_ms < (num + 1) * 1_000)
    assert shown <= all_of_it * 1_000 + 1e-6
    assert (shown > 0) == (recent > 0)
