"""Sessions of one user as spans of time. Merging needs no I/O, so streams, batches and the truth share it.

The events of a span are no further from their neighbours than the gap. Events may come in any order: a late one can widen a
span or join two, and then the span that no longer exists must be deleted wherever it was written. A span is identified by its
start, so `merged` returns the spans to write and the starts to delete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    start_ms: int
    end_ms: int  # the time of the last event, without the gap
    events: int


class Changes(NamedTuple):
    """Return all spans, the new or changed ones among them, and the starts of removed ones."""

    spans: list[Span]
    written: list[Span]
    deleted: list[int]


def merged(spans: Iterable[Span], event_times_ms: Iterable[int], gap_ms: int) -> Changes:
    before = {span.start_ms: span for span in spans}
    after: list[Span] = []
    for span in sorted([*before.values(), *(Span(time, time, 1) for time in event_times_ms)]):
        last = after[-1] if after else None
        if last is not None and span.start_ms - last.end_ms <= gap_ms:
            after[-1] = Span(last.start_ms, max(last.end_ms, span.end_ms), last.events + span.events)
        else:
            after.append(span)
    now = {span.start_ms: span for span in after}
    assert len(now) == len(after), "two spans of a user cannot start together"
    return Changes(after, [span for span in after if before.get(span.start_ms) != span], sorted(set(before) - set(now)))


def split_closed(spans: list[Span], watermark_ms: int, gap_ms: int) -> tuple[list[Span], list[Span]]:
    """Separate the spans that no event can join any more from those that are still open."""
    closed = [span for span in spans if span.end_ms + gap_ms < watermark_ms]
    return closed, [span for span in spans if span.end_ms + gap_ms >= watermark_ms]
