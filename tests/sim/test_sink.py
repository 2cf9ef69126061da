"""Spark's exactly-once sink in histories with faults, and mistakes that they must notice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.effort import seeds
from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.producer import WrittenTransaction, end
from ottla.spark.sink.decisions import Claim, Decisions
from tests.histories import assert_noticed, by_name, each_mistake, noticed_by
from tests.sim.sink_history import play
from tests.sim.sink_model import SinkBroken

SEEDS = range(seeds(6, long=10))
#: One of the first seeds, so many, must notice a mistake.
MUTANT_SEEDS = 15


def nothing_is_decided(patch: pytest.MonkeyPatch) -> None:
    """A driver commits the tasks' transactions one after the other, and no record says that they belong together."""
    patch.setattr(Claim, "write", lambda self, decision, now_ms: None)


def last_decision_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """A driver treats each batch as one that was not decided."""
    init = Claim.__init__

    def blind(self: Claim, *arguments: Any) -> None:
        init(self, *arguments)
        self.last = None

    patch.setattr(Claim, "__init__", blind)
    patch.setattr("ottla.spark.sink.task._last_decision", lambda *arguments: None)


def drivers_do_not_fence(patch: pytest.MonkeyPatch) -> None:
    """Each driver has its own transactional id, and decides beside the others."""
    claim, numbers = Decisions.claim, itertools.count()
    patch.setattr(Decisions, "claim", lambda self, driver_id: claim(self, f"{driver_id}/{next(numbers)}"))


def lost_transactions_are_resolved(patch: pytest.MonkeyPatch) -> None:
    """Whatever was decided counts as committed."""

    def resolved(cluster: BlockingCluster, decision: Any, partition: int) -> bool:
        return True

    patch.setattr("ottla.spark.sink.task.resolved", resolved)
    patch.setattr("ottla.spark.sink.commit.commit_or_find", _commit_anyhow)


def _commit_anyhow(cluster: BlockingCluster, written: WrittenTransaction) -> bool:
    end(cluster, written.transaction, commit=True)
    return True


def what_is_fenced_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """A transaction that its producer can no longer end counts as lost, as if its id had never been used after its commit."""
    patch.setattr("ottla.spark.client.outcomes.was_committed", lambda cluster, written: False)


def what_is_fenced_was_committed(patch: pytest.MonkeyPatch) -> None:
    """The log is not asked which transactions were aborted."""
    patch.setattr("ottla.spark.client.outcomes.was_committed", lambda cluster, written: True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_sees_each_record_of_a_batch_once(seed: int) -> None:
    play(seed)


MUTANTS = by_name(
    nothing_is_decided,
    last_decision_is_not_read,
    drivers_do_not_fence,
    lost_transactions_are_resolved,
    what_is_fenced_was_aborted,
    what_is_fenced_was_committed,
)
is_noticed = noticed_by(play, SinkBroken, MUTANTS)


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("sink", name, is_noticed, MUTANT_SEEDS)
