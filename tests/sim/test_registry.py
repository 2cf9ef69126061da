"""The registry in virtual time: histories with faults, and mistakes that they must notice."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.client.consumer import Consumer
from ottla.client.producer import ClusterProducer
from ottla.registry.checking import Question
from ottla.registry.log import LogPlace, SchemaLog, _Reader
from ottla.registry.registry import SchemaRegistry
from tests.effort import seeds
from tests.histories import assert_noticed, by_name, each_mistake, noticed_by
from tests.sim.registry_history import play
from tests.sim.registry_truth import RegistryBroken

#: A mistake must be noticed by one of them.
SEEDS = range(seeds(6, long=10))
MUTANT_SEEDS = 10


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """A leader takes no producer epoch: the partition still accepts batches of the previous leader."""

    def made(cluster: Any, topic: str, *, transactional_id: str, topic_id: bytes) -> ClusterProducer:
        return ClusterProducer(cluster, topic, topic_id=topic_id)

    patch.setattr("ottla.registry.log.ClusterProducer", made)


def no_sync(patch: pytest.MonkeyPatch) -> None:
    """A write is decided on the state that happens to be in memory."""
    sync = SchemaLog.sync

    async def at_once(self: SchemaLog, place: LogPlace | None = None) -> LogPlace:
        return self.place if place is None else await sync(self, place)

    patch.setattr(SchemaLog, "sync", at_once)


def no_lock(patch: pytest.MonkeyPatch) -> None:
    """Two writes are decided on one state."""
    init = SchemaRegistry.__init__

    def unlocked(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self._writing = nullcontext()

    patch.setattr(SchemaRegistry, "__init__", unlocked)


def cuts_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Take what was read as valid in each leader epoch, without asking for cuts."""

    async def settle(self: _Reader) -> None:
        await Consumer._settle(self)
        ((at, _),) = self.positions.items()
        if not self._is_another(at):
            self.confirmed = self.place.topic_id, self._leaders.of(at).epoch

    patch.setattr(_Reader, "_settle", settle)


def former_state(patch: pytest.MonkeyPatch) -> None:
    """A topic that was created again goes on with the schemas of its predecessor."""
    read = SchemaLog._read

    async def kept(self: SchemaLog) -> None:
        before, topic_id = self.state, self.place.topic_id
        await read(self)
        if self.place.topic_id != topic_id:
            self.state = before

    patch.setattr(SchemaLog, "_read", kept)


def verdict_of_before(patch: pytest.MonkeyPatch) -> None:
    """Keep the result of a schema's check, although other versions have been added meanwhile."""
    patch.setattr(Question, "__eq__", lambda self, other: isinstance(other, Question))


def answered_at_once(patch: pytest.MonkeyPatch) -> None:
    """Let an instance that forwards a write respond before it has the written record."""
    patch.setattr("ottla.registry.rest.forwarding.place_from", lambda text: None)


#: A slow instance excluded the leader that the group had named since, and no instance led. A topic was created again while an
#: instance started, which never finished reading it.
FOUND = (957, 966)


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_an_id_means_one_schema_and_what_was_answered_is_found_by_every_instance(seed: int) -> None:
    play(seed)


MUTANTS = by_name(no_fence, no_sync, no_lock, cuts_are_not_asked_for, former_state, verdict_of_before, answered_at_once)
is_noticed = noticed_by(play, RegistryBroken, MUTANTS)


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("registry", name, is_noticed, MUTANT_SEEDS)
