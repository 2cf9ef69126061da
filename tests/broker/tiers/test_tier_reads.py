"""Reads of remote storage: the segment that one takes, and that a missing segment is an error and never stepped over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tiers.objects import TierFailure
from ottla.broker.tiers.remote_segments import RemoteSegments
from ottla.broker.tiers.tier_reads import READERS, TierReads
from tests.broker.tiers.test_remote_segments import put, segment


def test_an_offset_that_no_segment_has_is_not_stepped_over() -> None:
    """A consumer would miss acknowledged records without an error: an operator has deleted objects, or a copy is not there yet."""
    segments = RemoteSegments()
    put(segments, segment(1, 0, 9), segment(2, 20, 29))
    driver: Any = SimpleNamespace(segments_of=lambda partition: segments)
    own: Any = SimpleNamespace(
        epochs=SimpleNamespace(entries=[(0, 0)]), log_end_offset=40, local_start_offset=30, log_start_offset=0
    )
    nothing: Any = SimpleNamespace()
    configs: Any = {READERS: 1}
    reads = TierReads(nothing, configs, driver, nothing)
    assert reads._found(nothing, own, 9).segment.start == 0
    assert reads._found(nothing, own, 20).segment.start == 20
    with pytest.raises(TierFailure, match="no remote segment has it"):
        reads._found(nothing, own, 10)
