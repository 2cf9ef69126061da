"""Percentiles of durations are compared with the sorted list; runs are split into windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.load.measured import GROWTH, Durations, MeasuredRun, Taken


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=300), st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_a_percentile_is_at_most_one_percent_above_the_exact_one(values: list[float], share: float) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)
    exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    assert exact * (1 - 1e-9) <= durations.percentile_ms(share) <= exact * GROWTH * (1 + 1e-9)
    assert (durations.min_ms, durations.max_ms, durations.count) == (min(values), max(values), len(values))


def test_no_duration_is_zero_and_a_clock_that_stands_still_too() -> None:
    durations = Durations()
    assert durations.row() == dict.fromkeys(("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"), 0.0)
    durations.add(-1)
    assert durations.percentile_ms(1.0) == 0.0


def test_a_million_durations_take_the_room_of_their_size_classes() -> None:
    durations = Durations()
    durations.add(1.0, 999_999)
    durations.add(1000.0)
    assert (round(durations.percentile_ms(0.999)), durations.percentile_ms(1.0), durations.count) == (1, 1000.0, 10**6)


def test_a_window_ends_with_its_interval_and_has_what_came_since_the_one_before() -> None:
    run = MeasuredRun(0, 1000)
    run.add(Taken(0, 10, 100, 2.0, 900_000_000))
    assert run.ended_window(900_000_000) is None
    run.add(Taken(10, 5, 50, 4.0, 1_100_000_000))
    ended = run.ended_window(1_100_000_000)
    assert ended is not None
    assert (ended.records, ended.bytes, ended.durations.mean_ms, ended.seconds(1_100_000_000)) == (15, 150, 3.0, 1.1)
    run.add(Taken(15, 1, 10, 6.0, 1_200_000_000))
    assert run.ended_window(2_000_000_000) is None
    assert (run.window.begin_ns, run.window.records, run.every.records) == (1_100_000_000, 1, 16)


def test_a_run_that_took_no_time_has_finite_rates() -> None:
    run = MeasuredRun(5, 1000)
    run.add(Taken(0, 2, 20, 0.0, 5))
    row = run.every.row("produce", 5)
    assert (row["what"], row["records"], row["records_per_s"], row["mb_per_s"]) == ("produce", 2, 2000, 0.02)
