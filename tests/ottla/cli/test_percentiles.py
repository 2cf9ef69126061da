"""Percentiles of durations, against the sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.percentiles import GROWTH, Durations


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
