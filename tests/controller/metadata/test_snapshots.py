"""The times at which a node writes a snapshot of the metadata, and its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from ottla.controller.metadata.image import EMPTY, MetadataImage
from ottla.controller.metadata.snapshots import (
    BATCHES_BETWEEN_SNAPSHOTS_MAX,
    BYTES_BETWEEN_SNAPSHOTS_MAX,
    RECORDS_PER_STEP,
    SNAPSHOT_INTERVAL_MS_MAX,
    SnapshotGenerator,
)
from ottla.server.world import World
from ottla.storage.files import OsFiles
from tests.controller.harness import DecisionHarness
from tests.manual_clock import ManualClock


class Writer:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.ends: list[str] = []

    def append(self, records: list[bytes]) -> None:
        self.steps.append(len(records))

    def freeze(self) -> None:
        self.ends.append("frozen")

    def abandon(self) -> None:
        self.ends.append("abandoned")


WITH_FEATURES = DecisionHarness(brokers=0).image


class Workers:
    async def run(self, function: Callable[[], None]) -> None:
        function()


class SnapshotHarness:
    """A generator on a clock that the test moves. The store keeps the writers; with `refuses` it rejects a snapshot, as the log
    may.
    """

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.writers: list[Writer] = []
        self.created: list[int] = []
        self.refuses = False
        world = World(self.clock, Random(0), OsFiles(), None, Workers(), lambda task, name: self.tasks.append(task))
        self.generator = SnapshotGenerator(world, self, **limits)

    def create_snapshot(self, offset: int, epoch: int) -> Writer | None:
        if self.refuses:
            raise ValueError("another leader's log")
        self.writers.append(Writer())
        return self.writers[-1]

    def snapshot_created(self, offset: int, epoch: int) -> None:
        self.created.append(offset)

    def update(self, image: MetadataImage = WITH_FEATURES, *, size: int = 0, batches: int = 1) -> bool:
        """Commit `size` bytes, and return whether that begins a snapshot."""
        before = len(self.tasks)
        self.generator.committed(batches if size else 0, size)
        self.generator.write_if_due(image)
        return len(self.tasks) > before

    def write(self) -> None:
        while self.tasks:
            asyncio.run(self._written(self.tasks.pop()))

    async def _written(self, writing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(writing)
        while not task.done():
            await asyncio.sleep(0)
            self.clock.turn()
        await task

    def close(self) -> None:
        """Drop the snapshots that a test did not write, as at a stop. Without the close Python would warn that a coroutine was
        never awaited.
        """
        while self.tasks:
            self.tasks.pop().close()


@pytest.fixture
def made() -> Iterator[Callable[..., SnapshotHarness]]:
    harnesses: list[SnapshotHarness] = []

    def make(**limits: int) -> SnapshotHarness:
        harnesses.append(SnapshotHarness(**limits))
        return harnesses[-1]

    yield make
    for each in harnesses:
        each.close()


@pytest.fixture
def harness(made: Callable[..., SnapshotHarness]) -> SnapshotHarness:
    return made()


def test_a_snapshot_is_due_after_so_many_bytes_of_log(harness: SnapshotHarness) -> None:
    assert not harness.update(size=BYTES_BETWEEN_SNAPSHOTS_MAX - 1)
    assert harness.update(size=1)
    assert not harness.update(size=BYTES_BETWEEN_SNAPSHOTS_MAX), "one is being written"
    harness.write()
    assert harness.writers[0].ends == ["frozen"] and len(harness.created) == 1
    assert harness.update(), "the bytes that came meanwhile count"
    harness.write()
    harness.generator.committed(1, BYTES_BETWEEN_SNAPSHOTS_MAX)
    harness.generator.loaded_snapshot()
    assert not harness.update(size=1), "the image came out of a snapshot"


def test_a_cluster_without_metadata_version_gets_no_snapshot_because_kafkas_controller_could_not_start_from_it(
    harness: SnapshotHarness,
) -> None:
    assert not harness.update(EMPTY, size=BYTES_BETWEEN_SNAPSHOTS_MAX)
    assert harness.update(size=1)


def test_a_snapshot_is_due_when_the_last_one_is_too_old_and_something_was_committed(harness: SnapshotHarness) -> None:
    harness.clock.advance_to(SNAPSHOT_INTERVAL_MS_MAX)
    assert not harness.update()
    assert harness.update(size=1)
    harness.write()
    harness.clock.advance_to(2 * SNAPSHOT_INTERVAL_MS_MAX - 1)
    assert not harness.update(size=1)


def test_a_snapshot_is_due_after_so_many_batches_of_an_idle_quorum_whatever_the_properties_say(
    made: Callable[..., SnapshotHarness],
) -> None:
    """A start has to read each of these batches."""
    harness = made(bytes_max=2**31 - 1, interval_ms_max=0)
    harness.clock.advance(7 * 24 * SNAPSHOT_INTERVAL_MS_MAX)
    assert not harness.update(size=70, batches=BATCHES_BETWEEN_SNAPSHOTS_MAX - 1)
    assert harness.update(size=70)
    harness.write()
    assert not harness.update(size=70, batches=BATCHES_BETWEEN_SNAPSHOTS_MAX - 1), "the count has begun again"
    assert harness.update(size=70)


def test_a_snapshot_is_encoded_a_bounded_number_of_records_in_each_turn(harness: SnapshotHarness) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", partitions=3 * RECORDS_PER_STEP)
    harness.update(cluster.image, size=BYTES_BETWEEN_SNAPSHOTS_MAX)
    harness.write()
    (writer,) = harness.writers
    assert max(writer.steps) == RECORDS_PER_STEP
    assert sum(writer.steps) == len(list(cluster.image.to_records()))


def test_a_log_that_another_leader_has_replaced_gets_no_snapshot_now_but_later(harness: SnapshotHarness) -> None:
    harness.refuses = True
    assert harness.update(size=BYTES_BETWEEN_SNAPSHOTS_MAX)
    harness.write()
    assert not harness.created
    harness.refuses = False
    assert harness.update(size=BYTES_BETWEEN_SNAPSHOTS_MAX)
    harness.write()
    assert len(harness.created) == 1
