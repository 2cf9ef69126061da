"""A node's process makes some settings for itself before it makes the node."""

from __future__ import annotations

from ottla.node.process import GC_THRESHOLDS


def test_a_pass_of_the_collector_looks_at_some_thousand_objects_and_the_whole_heap_is_hardly_ever_looked_at() -> None:
    """Python's generational garbage collector: a pass scans its own generation and all younger ones, in one turn of the loop."""
    youngest, passes_of_youngest, passes_of_next = GC_THRESHOLDS
    assert youngest * (passes_of_youngest + 2) <= 12_000
    assert youngest * passes_of_youngest * passes_of_next >= 100_000_000
