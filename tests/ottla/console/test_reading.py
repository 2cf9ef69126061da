"""Windows of a scan, cursors of pages, and filters."""

from __future__ import annotations

import pytest

from ottla.console.reading import WINDOW_OFFSETS, Query, cursor, read_cursor, windows
from ottla.protocol.records.record import Record


@pytest.mark.parametrize("back", [True, False])
def test_windows_cover_each_offset_once(back: bool) -> None:
    begin, ends = {0: 5, 1: 0, 2: 9}, {0: 5 + 3 * WINDOW_OFFSETS + 1, 1: 7, 2: 9}
    covered: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for starts, stops in windows(begin, ends, back):
        for index in starts:
            covered[index].append((starts[index], stops[index]))
    for index, ranges in covered.items():
        ranges.sort(reverse=back)
        assert ranges == sorted(ranges, reverse=back)
        flat = [offset for start, stop in sorted(ranges) for offset in range(start, stop)]
        assert flat == list(range(begin[index], ends[index]))


def test_a_cursor_is_read_back_and_anything_else_is_none() -> None:
    assert read_cursor(cursor({1: 20, 0: 17})) == {0: 17, 1: 20}
    assert [read_cursor(text) for text in ("", "0", "0.x", "0.1-", "-1.2", "0.1;1.2")] == [None] * 6


def test_a_filter_needs_all_that_is_asked_for() -> None:
    record = Record(0, 0, b"key-1", b"the value", (("source", b"web"), ("empty", None)))

    def fits(**wanted: object) -> bool:
        return Query("t", **wanted).matches()(record)

    assert fits() and fits(key="ey", value="val", header="source=we") and fits(header="empty")
    assert not fits(key="ey", exact_key=True) and fits(key="key-1", exact_key=True)
    assert not fits(value="x") and not fits(header="empty=a") and not fits(header="other")
    assert not Query("t", key="k").matches()(Record(0, 0, None, None))
