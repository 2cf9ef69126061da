"""The lag of a group over time, and its picture."""

from __future__ import annotations

from xml.etree import ElementTree

from ottla.cli.lag_history import COLOURS, SAMPLES_MAX, LagHistory
from ottla.client.group_offsets import PartitionLag

SVG = "{http://www.w3.org/2000/svg}"


def test_one_look_is_a_bar_for_each_partition() -> None:
    history = LagHistory()
    history.add(
        0, [PartitionLag("t", 0, 5, 10, 5), PartitionLag("t", 1, 0, 40, 40), PartitionLag("t", 2, None, 3, None)]
    )
    root = ElementTree.fromstring(history.svg("g"))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill") == COLOURS[0]]
    heights = [float(bar.get("height", "")) for bar in bars]
    assert len(bars) == 3 and heights[1] == 8 * heights[0] and heights[2] == 0


def test_looks_over_time_are_a_line_for_each_partition_and_have_a_rate() -> None:
    history = LagHistory()
    for second in range(4):
        history.add(
            second * 1000, [PartitionLag("t", index, second * 10, 100, 100 - 10 * second) for index in range(9)]
        )
    assert history.consumed_per_s(("t", 0)) == 10.0
    root = ElementTree.fromstring(history.svg("g"))
    assert len(list(root.iter(f"{SVG}polyline"))) == 9
    assert "and 2 more" in history.svg("g")


def test_a_partition_that_comes_later_begins_later() -> None:
    history = LagHistory()
    history.add(0, [PartitionLag("t", 0, 0, 1, 1)])
    history.add(1000, [PartitionLag("t", 0, 0, 1, 1), PartitionLag("u", 0, 0, 2, 2)])
    history.add(2000, [PartitionLag("u", 0, 0, 2, 2)])
    assert history.lags == {("t", 0): [1, 1, None], ("u", 0): [None, 2, 2]}
    ElementTree.fromstring(history.svg("g"))


def test_a_watch_of_a_week_keeps_its_course_in_bounded_memory() -> None:
    history = LagHistory()
    for second in range(5 * SAMPLES_MAX):
        history.add(second * 1000, [PartitionLag("t", 0, 0, second, second)])
    assert len(history.times_ms) <= SAMPLES_MAX and history.times_ms[0] == 0


def test_names_are_text_in_the_picture_and_no_markup() -> None:
    history = LagHistory()
    history.add(0, [PartitionLag("<script>&\x1b", 0, 0, 1, 1)])
    picture = history.svg("</title><script>alert(1)</script>\x07")
    assert "<script>" not in picture and "\x1b" not in picture and "\x07" not in picture
    ElementTree.fromstring(picture)
