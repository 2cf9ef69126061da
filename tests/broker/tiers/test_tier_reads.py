"""Reads of remote storage: each takes the right segment, and a missing segment is an error and is never skipped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tiers.objects import TierFailure
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteSegments
from ottla.broker.tiers.tier_reads import RemoteSearch, TierReads
from ottla.storage.log_files import AbortedTxn
from tests.broker.tiers.test_remote_segments import put, segment


def test_an_offset_that_no_segment_has_is_not_stepped_over() -> None:
    """A consumer would miss acknowledged records without an error. An operator may have deleted objects, or a copy may not be
    there yet.
    """
    segments = RemoteSegments()
    put(segments, segment(1, 0, 9), segment(2, 20, 29))
    driver: Any = SimpleNamespace(segments_of=lambda partition: segments)
    own: Any = SimpleNamespace(
        epochs=SimpleNamespace(entries=[(0, 0)]), log_end_offset=40, local_start_offset=30, log_start_offset=0
    )
    nothing: Any = SimpleNamespace()
    world: Any = SimpleNamespace(clock=None, spawn=None)
    reads = TierReads(world, nothing, driver, nothing, nothing)
    assert reads._found(nothing, own, 9).segment.start == 0
    assert reads._found(nothing, own, 20).segment.start == 20
    with pytest.raises(TierFailure, match="no remote segment has it"):
        reads._found(nothing, own, 10)


class Disk:
    """A log whose local start offset moves during the first question to the store."""

    def __init__(self, local_start_offset: int, later: int) -> None:
        self.epochs = SimpleNamespace(entries=[(0, 0)])
        self.log_start_offset, self.log_end_offset = 0, 40
        self.local_start_offset = local_start_offset
        self.later = later
        self.config = SimpleNamespace(max_decompressed_message_bytes=1)
        self.segments = SimpleNamespace(aborted_transactions=lambda start, end: [])
        self.asked: list[int] = []


class Reader:
    """The reader of a segment, which notes that it is asked. One of the readers has the record."""

    def __init__(self, own: Disk, found: RemoteSegment, has: int) -> None:
        self.own, self.segment, self.has = own, found, has

    def _ask(self) -> bool:
        self.own.asked.append(self.segment.start)
        self.own.local_start_offset = self.own.later
        return self.segment.start == self.has

    async def aborted(self) -> list[AbortedTxn]:
        return [AbortedTxn(1, 0, 5, 100)] if self._ask() else []

    async def search(self, *given: object) -> tuple[int, int, int] | None:
        return (1, self.has, 0) if self._ask() else None


def reads_of(own: Disk, has: int, *, has_aborted: bool = True) -> TierReads:
    segments = RemoteSegments()
    copied = segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)
    put(segments, *(each._replace(has_aborted=has_aborted) for each in copied))

    async def reader(partition: object, found: RemoteSegment) -> Reader:
        return Reader(own, found, has)

    nothing: Any = SimpleNamespace(clock=None, spawn=None, add=lambda *given: None)
    driver: Any = SimpleNamespace(segments_of=lambda partition: segments)
    made: Any = TierReads(nothing, nothing, driver, nothing, nothing)
    made._reader = reader
    return made


PARTITION: Any = SimpleNamespace(topic="t", index=0, topic_id=bytes(16))


async def test_markers_of_segments_that_leave_the_disk_during_the_wait_are_looked_for_in_the_store() -> None:
    own: Any = Disk(10, later=30)
    await reads_of(own, has=20)._aborted(PARTITION, own, 0, 10)
    assert own.asked == [0, 0, 10, 20]


async def test_segments_without_aborted_transactions_are_not_opened() -> None:
    """Each read would open all segments that follow, and look at them on the event loop: a log may have 10,000."""
    own: Any = Disk(30, later=30)
    assert await reads_of(own, has=20, has_aborted=False)._aborted(PARTITION, own, 0, 10) == []
    assert own.asked == []


async def test_a_search_goes_on_in_the_store_where_segments_left_the_disk_meanwhile() -> None:
    own: Any = Disk(10, later=30)
    answers: list[Any] = []
    reply: Any = SimpleNamespace(cancelled=False, follow=answers.append)
    then: Any = dict
    await reads_of(own, has=20).search_all({("t", 0): RemoteSearch(PARTITION, own, 5)}, reply, then)
    assert own.asked[0] == 0 and answers == [{("t", 0): (1, 20, 0)}]
