"""Sessions: the order in which events come does not matter, and a reader that applies the changes has the right result."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.spans import Span, merged, split_closed

GAP_MS = 10


def test_a_late_event_joins_two_sessions_and_takes_one_back() -> None:
    before = merged((), [0, 5, 25, 30], GAP_MS)
    assert before.spans == [Span(0, 5, 2), Span(25, 30, 2)]
    after = merged(before.spans, [15], GAP_MS)
    assert (after.written, after.deleted) == ([Span(0, 30, 5)], [25])


def test_an_earlier_event_moves_the_start_and_deletes_the_old_one() -> None:
    after = merged([Span(20, 20, 1)], [12], GAP_MS)
    assert (after.written, after.deleted) == ([Span(12, 20, 2)], [20])


def test_a_silence_longer_than_the_gap_ends_a_session() -> None:
    assert merged((), [0, 10], GAP_MS).spans == [Span(0, 10, 2)]
    assert merged((), [0, 11], GAP_MS).spans == [Span(0, 0, 1), Span(11, 11, 1)]


def test_a_session_closes_when_no_event_can_join_it_any_more() -> None:
    spans = [Span(0, 5, 2), Span(40, 50, 3)]
    assert split_closed(spans, 15, GAP_MS) == ([], spans)
    assert split_closed(spans, 16, GAP_MS) == (spans[:1], spans[1:])


@given(st.lists(st.lists(st.integers(0, 200), max_size=8), max_size=8))
def test_batches_in_any_order_end_in_the_same_table(batches: list[list[int]]) -> None:
    table: dict[int, Span] = {}
    spans: list[Span] = []
    for times in batches:
        changes = merged(spans, times, GAP_MS)
        spans = changes.spans
        table |= {span.start_ms: span for span in changes.written}
        for start in changes.deleted:
            del table[start]
    at_once = merged((), [time for times in batches for time in times], GAP_MS).spans
    assert sorted(table.values()) == spans == at_once
