"""The mirror in virtual time: histories with faults, and mistakes that they must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from ottla.client.cluster import Leaders
from ottla.client.fetched import Batches
from ottla.client.partitions import TopicPartition
from ottla.mirror.beginnings import Beginnings
from ottla.mirror.lane import Lane
from ottla.mirror.positions import MirrorPosition, Positions
from ottla.mirror.reader import SourceReader
from ottla.mirror.shares import lane_of
from ottla.mirror.syncs import SyncStore
from tests.histories import assert_noticed, by_name, each_mistake, noticed_by
from tests.sim.mirror_history import play
from tests.sim.mirror_model import MirrorBroken

SEEDS = range(12)
#: A mistake is noticed within so many.
MUTANT_SEEDS = 40


def stale_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows are handed out after a wait, and a lane accepts rows that it does not expect."""
    poll, take = SourceReader.poll_batches, Lane.put

    async def late(self: SourceReader) -> list[Batches]:
        rows = await poll(self)
        await asyncio.sleep(1.0)
        return rows

    def put(self: Lane, batches: Batches) -> None:
        if batches[:2] in self.expected and batches.topic_id == self.positions[batches[:2]].topic_id:
            self.expected[batches[:2]] = batches.position
        take(self, batches)

    patch.setattr(SourceReader, "poll_batches", late)
    patch.setattr(Lane, "put", put)


def names_raise(patch: pytest.MonkeyPatch) -> None:
    """A response about an unknown topic ends the worker."""

    def name_of(self: Leaders, topic_id: bytes) -> str:
        return {found: name for name, found in self._topic_ids.items()}[topic_id]

    patch.setattr(Leaders, "name_of", name_of)


def _stored(patch: pytest.MonkeyPatch, change: Callable[[MirrorPosition], MirrorPosition]) -> None:
    of = Beginnings.of

    async def changed(
        self: Beginnings, places: Iterable[TopicPartition], found: Mapping[TopicPartition, MirrorPosition]
    ) -> Any:
        return await of(self, places, {place: change(row) for place, row in found.items()})

    patch.setattr(Beginnings, "of", changed)


def positions_by_name(patch: pytest.MonkeyPatch) -> None:
    """The id of the topic is not compared."""
    _stored(patch, lambda row: row._replace(topic_id=None))


def no_epochs(patch: pytest.MonkeyPatch) -> None:
    """A source that lost records is not asked where both logs diverge."""
    _stored(patch, lambda row: row._replace(epoch=-1))


def latest_without_position(patch: pytest.MonkeyPatch) -> None:
    """Each lane starts its partitions at their ends again if nothing has been mirrored yet."""
    read = Positions.read

    async def forgetful(self: Positions) -> dict[TopicPartition, MirrorPosition]:
        found = await read(self)
        return {place: row for place, row in found.items() if row.epoch >= 0}

    async def nothing_begun(self: Any, lane: int, found: Iterable[TopicPartition]) -> Any:
        if not self.options.from_latest:
            return None
        places = {place for place in self.catalogue.source_places if lane_of(place) == lane} - set(found)
        return await self._beginnings.latest(places)

    patch.setattr(Positions, "read", forgetful)
    patch.setattr("ottla.mirror.worker.Worker.latest_of", nothing_begun)


def pairs_of_others(patch: pytest.MonkeyPatch) -> None:
    """Pairs of a topic that was created again translate the offsets of the new topic, until a pair goes back."""
    add = SyncStore.add
    patch.setattr(SyncStore, "add", lambda self, sync: add(self, sync._replace(ids=None)))


def checkpoints_go_forward(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint goes back only with its group, even if its topic was created again."""
    patch.setattr("ottla.mirror.checkpoints.is_of_others", lambda row, ids: False)


def ends_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Offsets of groups are set to their checkpoints everywhere, and never back."""

    async def endless(cluster: Any, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 1 << 62)

    patch.setattr("ottla.mirror.checkpoints.end_offsets", endless)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_in_the_target_once_and_in_order_or_its_absence_is_said(seed: int) -> None:
    play(seed)


MUTANTS = by_name(
    positions_by_name,
    stale_rows,
    names_raise,
    no_epochs,
    latest_without_position,
    pairs_of_others,
    checkpoints_go_forward,
    ends_are_not_asked,
)
is_noticed = noticed_by(play, MirrorBroken, MUTANTS)


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("mirror", name, is_noticed, MUTANT_SEEDS)
