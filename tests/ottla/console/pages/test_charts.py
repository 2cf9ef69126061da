"""The charts of pages: each chart in a template has its series."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.console.pages.overview import SERIES_SHOWN_MAX, chart_of
from ottla.console.sampler import Sampler
from ottla.console.site import FOLDER
from ottla.console.window import Window

SAMPLE = {
    "cluster/records": 1.0,
    "cluster/under_replicated": 2.0,
    "cluster/offline": 0.0,
    **{f"broker/{node}/{what}": float(node) for node in (1, 2, 10) for what in ("in", "out", "cpu", "delay")},
    "topic/orders/records": 5.0,
    "group/g/lag": 7.0,
}


def sampler(sample: dict[str, float]) -> Sampler:
    window = Window()
    window.add(1_000.0, sample)
    return cast(Sampler, SimpleNamespace(window=window))


@pytest.mark.parametrize(
    ("what", "of", "series"),
    [
        ("records", "", {"records/s": [1.0]}),
        ("replicas", "", {"under-replicated": [2.0], "offline": [0.0]}),
        ("in", "", {"broker 1": [1.0], "broker 2": [2.0], "broker 10": [10.0]}),
        ("topic", "orders", {"records/s": [5.0]}),
        ("topic", "gone", {}),
        ("lag", "g", {"lag": [7.0]}),
    ],
)
def test_a_chart_has_the_series_of_what_it_is_of(what: str, of: str, series: dict[str, list[float]]) -> None:
    found = chart_of(sampler(SAMPLE), what, of)
    assert found is not None and found.series == series and found.times == [1_000.0]


def test_each_chart_that_a_template_shows_is_one() -> None:
    shown = {
        name
        for file in (FOLDER / "templates").glob("*.html")
        for name in re.findall(r"<live-chart what=\W(\w+)", file.read_text())
    }
    assert shown
    assert not {name for name in shown if chart_of(sampler(SAMPLE), name, "orders") is None}
    assert chart_of(sampler(SAMPLE), "cpu", "") is None, "a chart that no page shows"


def test_of_many_brokers_the_first_are_shown() -> None:
    many = sampler({f"broker/{node}/in": 1.0 for node in range(1, SERIES_SHOWN_MAX + 20)})
    found = chart_of(many, "in", "")
    assert found is not None and len(found.series) == SERIES_SHOWN_MAX
