"""The bound of segments that are mapped at the same time, and which of them are unmapped."""

from __future__ import annotations

from ottla.storage.files import MAPPED_SEGMENTS_MAX, Mappings


class MappedSegment:
    """The part of a segment that `Mappings` uses."""

    def __init__(self) -> None:
        self.recently_used = False
        self.is_mapped = True

    def unmap(self) -> None:
        self.is_mapped = False


def test_no_more_segments_stay_mapped_than_the_bound_and_the_newest_is_one_of_them() -> None:
    mappings = Mappings()
    segments = [MappedSegment() for _ in range(MAPPED_SEGMENTS_MAX + 10)]
    for segment in segments:
        mappings.opened(segment)
        assert segment.is_mapped
    assert len(mappings._open) == sum(segment.is_mapped for segment in segments) == MAPPED_SEGMENTS_MAX


def test_a_segment_that_was_used_meanwhile_stays_mapped() -> None:
    mappings = Mappings(limit=3)
    first, *others = [MappedSegment() for _ in range(6)]
    mappings.opened(first)
    for segment in others:
        first.recently_used = True
        mappings.opened(segment)
        segment.recently_used = False
    assert first.is_mapped
    assert [segment.is_mapped for segment in others] == [False, False, False, True, True]


def test_without_address_space_the_older_half_is_unmapped() -> None:
    mappings = Mappings()
    segments = [MappedSegment() for _ in range(4)]
    for segment in segments:
        mappings.opened(segment)
    mappings.shrink()
    assert [segment.is_mapped for segment in segments] == [False, False, True, True]
    mappings.closed(segments[2])
    assert len(mappings._open) == 1
