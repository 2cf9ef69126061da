"""A leader's log that starts before what is stored: its start moves to the first offset that can be read, and never over one that can."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.tiers.own_copies import OwnCopies
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteSegments, RemoteState, changed, started
from ottla.broker.tiers.tier_driver import INTERVAL
from ottla.storage.log.retention import apply_retention
from tests.broker.tiers.harness import TierHarness
from tests.broker.tiers.test_remote_segments import PLACE, put
from tests.storage.logs_for_tests import NOW_MS, SMALL


class NewLeader(TierHarness):
    """A log of which the disk has the active segment alone, and whose first segments a former leader has deleted from the store."""

    async def begin(self, gone: int = 2) -> None:
        await self.round()
        assert self.segments is not None
        self.stored = sorted(self.segments.by_id.values(), key=lambda each: each.start)
        self.driver._copies = OwnCopies()  # another broker has made them
        self.log.remote_end = self.stored[-1].end
        assert apply_retention(self.log, NOW_MS) == len(self.stored)
        assert self.log.log_start_offset == 0 < self.log.local_start_offset
        for each in self.stored[:gone]:
            self.forget(each)

    def forget(self, segment: RemoteSegment) -> None:
        """Delete a segment, as the former leader did."""
        assert self.segments is not None
        for state in (RemoteState.DELETE_STARTED, RemoteState.DELETE_FINISHED):
            self.segments.replay(changed(PLACE, segment.id, state, 2, 8))
        for name in [each for each in self.store.objects if f"{segment.start:020d}-" in each]:
            self.store.delete(name)

    async def later(self) -> int:
        """Return the log start after the next round that the clock makes due."""
        self.clock.advance(int(str(self.configs[INTERVAL])))
        await self.round()
        return self.log.log_start_offset


@pytest.fixture
def leader(tmp_path: Path) -> NewLeader:
    return NewLeader(tmp_path, replace(SMALL, local_retention_bytes=0))


async def test_the_log_starts_at_the_first_segment_that_is_left(
    leader: NewLeader, caplog: pytest.LogCaptureFixture
) -> None:
    await leader.begin()
    assert await leader.later() == leader.stored[2].start
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"starts at {leader.stored[2].start} and not at 0" in warning
    assert await leader.later() == leader.stored[2].start
    assert leader.barriers == 1


async def test_where_nothing_is_left_in_the_store_the_log_starts_on_the_disk(leader: NewLeader) -> None:
    await leader.begin(gone=100)
    assert await leader.later() == leader.log.local_start_offset


async def test_a_log_whose_first_segment_is_there_needs_no_barrier(leader: NewLeader) -> None:
    await leader.begin(gone=0)
    leader.forget(leader.stored[1])  # in the middle: the first segment is still read
    assert await leader.later() == 0
    assert not leader.barriers


async def test_records_that_were_not_read_yet_are_known_after_the_barrier(leader: NewLeader) -> None:
    await leader.begin(gone=0)
    whole, leader.segments = leader.segments, RemoteSegments()
    put(leader.segments, *leader.stored[2:])

    def read() -> None:
        leader.segments = whole

    leader.during_barrier = read
    assert await leader.later() == 0
    assert leader.barriers == 1


async def test_objects_without_records_may_have_lost_them_and_the_start_stays(leader: NewLeader) -> None:
    await leader.begin(gone=0)
    leader.segments = RemoteSegments()
    put(leader.segments, *leader.stored[2:])
    assert await leader.later() == 0
    for each in leader.stored[:2]:
        leader.forget(each)  # as the sweep does
    assert await leader.later() == leader.stored[2].start


async def test_a_copy_that_is_under_way_may_still_end(leader: NewLeader) -> None:
    await leader.begin()
    other = leader.stored[1]._replace(id=bytes([9] * 16), event_ms=leader.clock.wall_ms())
    assert leader.segments is not None
    leader.segments.replay(started(PLACE, other))
    assert await leader.later() == other.start
    leader.segments.replay(changed(PLACE, other.id, RemoteState.DELETE_STARTED, 2, 8))
    assert await leader.later() == leader.stored[2].start


async def test_a_deposed_leader_moves_nothing(leader: NewLeader) -> None:
    await leader.begin()

    def depose() -> None:
        leader.partition.leader_epoch += 1

    leader.during_barrier = depose
    assert await leader.later() == 0


async def test_the_start_does_not_pass_the_high_watermark(leader: NewLeader) -> None:
    await leader.begin()
    mark = leader.stored[2].start - 1
    leader.log.high_watermark = mark
    assert await leader.later() == mark


async def test_an_attempt_in_vain_is_repeated_by_the_clock_alone(leader: NewLeader) -> None:
    await leader.begin()
    leader.store.put(f"{leader.driver.layout.folder_of(leader.place)}/{0:020d}-{'A' * 22}.log", b"-")
    assert await leader.later() == 0
    await leader.round()
    assert leader.barriers == 1
    await leader.later()
    assert leader.barriers == 2
