"""Objects that no record names are deleted when they are old enough, and no others, whatever a broker has not read yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.tiers.local_layout import LocalLayout, name_of
from ottla.broker.tiers.objects import OWNER, SegmentLayout, objects_in
from ottla.broker.tiers.orphans import AGE, Orphans
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteSegments, RemoteState, TieredPartition, changed
from ottla.broker.tiers.rsm_layout import RsmLayout
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import uuid_to_str
from ottla.server.config.rsm_settings import RsmSettings
from tests.broker.tiers.harness import MemoryStore, SameThread
from tests.broker.tiers.test_remote_segments import PLACE, put, segment
from tests.manual_clock import ManualClock

AGE_MS = 100_000
KEPT, LEFT, YOUNG = segment(1, 0, 9), segment(2, 0, 9), segment(3, 20, 29)


class Sweeps:
    """A broker that leads the records of one partition, and a store."""

    def __init__(self, layout: SegmentLayout, store: Any = None) -> None:
        self.layout = layout
        self.store = MemoryStore() if store is None else store
        self.segments: RemoteSegments | None = RemoteSegments()
        put(self.segments, KEPT)
        self.is_there = True
        #: Records that are committed and not read here yet.
        self.late: list[RemoteSegment] = []
        self.barriers = 0
        self.fault: KafkaError | None = None
        self.clock = ManualClock(10 * AGE_MS)
        world = SimpleNamespace(clock=self.clock, workers=SameThread())
        topic = SimpleNamespace(
            led_segments=lambda place: self.segments if place == PLACE else None, catch_up=self._catch_up
        )
        driver = SimpleNamespace(
            topic=topic, own_store=self._open, is_wanted=lambda place: self.is_there, layout=layout
        )
        self.orphans = Orphans(cast(Any, world), cast(Any, {AGE: AGE_MS, CALL_TIMEOUT: 1_000}), cast(Any, driver))

    async def _open(self) -> Any:
        return self.store

    async def _catch_up(self, place: TieredPartition) -> None:
        if self.fault is not None:
            raise self.fault
        self.barriers += 1
        if self.segments is not None:
            put(self.segments, *self.late)

    def write(self, *segments: RemoteSegment) -> None:
        for each in segments:
            for suffix in self.layout.suffixes:
                self.store.put(self.name_of(each, suffix), b"-")

    def name_of(self, segment: RemoteSegment, suffix: str, place: TieredPartition = PLACE) -> str:
        return f"{self.layout.folder_of(place)}/{segment.start:020d}-{uuid_to_str(segment.id)}{suffix}"

    async def sweep(self) -> set[int]:
        """Sweep, and return the ids of the segments of which an object is left."""
        waiting = asyncio.ensure_future(self.orphans._sweep())
        while not waiting.done():
            await asyncio.sleep(0)
            self.clock.advance(1_000)
        await waiting
        return {each.segment_id[0] for each in objects_in(self.store, self.layout, PLACE)}


@pytest.fixture(params=[LocalLayout(), RsmLayout(RsmSettings())], ids=["kafka", "rsm"])
def sweeps(request: pytest.FixtureRequest) -> Sweeps:
    return Sweeps(request.param)


async def test_what_has_no_record_is_deleted_after_a_barrier(sweeps: Sweeps) -> None:
    sweeps.write(KEPT, LEFT)
    assert await sweeps.sweep() == {1}
    assert len(sweeps.store.objects) == len(sweeps.layout.suffixes)
    assert sweeps.barriers == 1
    assert await sweeps.sweep() == {1}
    assert sweeps.barriers == 1  # nothing is written where nothing is found


async def test_what_is_young_stays_until_it_has_been_seen_for_long_enough(sweeps: Sweeps) -> None:
    sweeps.store.modified_ms = sweeps.clock.wall_ms()
    sweeps.write(KEPT, LEFT)
    assert await sweeps.sweep() == {1, 2}
    assert not sweeps.barriers
    sweeps.store.modified_ms = 1 << 50  # the clock of the store is wrong
    sweeps.clock.advance(AGE_MS - 10_000)
    assert await sweeps.sweep() == {1, 2}
    sweeps.clock.advance(10_000)
    assert await sweeps.sweep() == {1}


async def test_a_record_that_was_committed_and_not_read_yet_keeps_its_objects(sweeps: Sweeps) -> None:
    sweeps.write(KEPT, LEFT, YOUNG)
    sweeps.late = [YOUNG]
    assert await sweeps.sweep() == {1, 3}


async def test_without_a_committed_barrier_nothing_is_deleted(sweeps: Sweeps) -> None:
    sweeps.write(KEPT, LEFT)
    sweeps.fault = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(KafkaError):
        await sweeps.sweep()
    assert len(sweeps.store.objects) == 2 * len(sweeps.layout.suffixes)


async def test_another_leaders_folders_are_left_alone(sweeps: Sweeps) -> None:
    sweeps.write(LEFT)
    sweeps.segments = None
    assert await sweeps.sweep() == {2}


async def test_where_all_records_of_a_topic_that_is_there_are_missing_nothing_is_deleted(sweeps: Sweeps) -> None:
    sweeps.write(KEPT, LEFT)
    sweeps.segments = RemoteSegments()
    assert await sweeps.sweep() == {1, 2}
    sweeps.is_there = False  # it was deleted
    assert await sweeps.sweep() == set()


async def test_a_segment_that_is_being_deleted_is_left_to_who_does_it(sweeps: Sweeps) -> None:
    sweeps.write(KEPT)
    assert sweeps.segments is not None
    sweeps.segments.replay(changed(PLACE, KEPT.id, RemoteState.DELETE_STARTED, 1, 7))
    assert await sweeps.sweep() == {1}


async def test_a_foreign_object_stays_whatever_its_name_looks_like(sweeps: Sweeps) -> None:
    sweeps.write(KEPT, LEFT)
    folder, own = sweeps.layout.folder_of(PLACE), sweeps.name_of(LEFT, ".log")
    foreign = {
        OWNER,
        f"{folder}/notes.txt",
        f"{folder}/below/{own.rpartition('/')[2]}",
        own.removesuffix(".log"),
        f"{own}.bak",
        sweeps.name_of(LEFT, ".parquet"),
        own.replace("-AgIC", "-AgI"),
        f"{folder}-copy/{own.rpartition('/')[2]}",
        f"other/{own}",
    }
    for name in foreign:
        sweeps.store.put(name, b"-")
    assert await sweeps.sweep() == {1}
    assert foreign <= set(sweeps.store.objects)
    assert len(sweeps.store.objects) == len(foreign) + len(sweeps.layout.suffixes)


def test_other_folders_are_not_looked_at() -> None:
    store = MemoryStore()
    for name in (
        "kafka-tiered-storage/events/x.log",
        "kafka-tiered-storage/a-1-short/x.log",
        "other/a",
        "ottla-cluster-id",
    ):
        store.put(name, b"")
    assert LocalLayout().partitions(store) == []
    store.put(name_of(PLACE, KEPT, ".log"), b"")
    assert LocalLayout().partitions(store) == [PLACE]
