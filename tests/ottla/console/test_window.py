"""The window of samples: its charts, and its bounds."""

from __future__ import annotations

from ottla.console.window import BYTES_MAX, EVENTS_MAX, SAMPLES_MAX, Event, Window


def test_a_chart_has_the_last_samples_and_gaps_where_there_was_no_number() -> None:
    window = Window(samples_max=3)
    for second, values in enumerate([{"a": 1.0}, {"a": 2.0, "b": 5.0}, {"b": 6.0}, {"a": 4.0}]):
        window.add(second, values)
    chart = window.chart({"A": "a", "B": "b", "none": "c"})
    assert chart.times == [1, 2, 3]
    assert chart.series == {"A": [2.0, None, 4.0], "B": [5.0, 6.0, None]}
    assert window.latest("a") == 4.0 and window.latest("b") is None


def test_series_beyond_the_bound_are_left_out_and_counted() -> None:
    window = Window(series_max=2)
    window.add(0, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert window.names("") == ["a", "b"] and window.left_out == 2


def test_a_series_that_has_been_silent_for_the_whole_window_makes_room() -> None:
    window = Window(samples_max=4, series_max=1)
    window.add(0, {"gone": 1})
    for second in range(1, SAMPLES_MAX + 3):
        window.add(second, {})
    window.add(1_000, {"new": 1})
    assert window.names("") == ["new"]


def test_a_full_window_needs_no_more_than_its_bytes() -> None:
    window = Window()
    window.add(0, {str(number): number for number in range(5_000)})
    assert window.nbytes <= BYTES_MAX + SAMPLES_MAX * 8
    window.record(Event(0, "isr", "t-0", "") for _ in range(3 * EVENTS_MAX))
    assert len(window.events) == EVENTS_MAX
