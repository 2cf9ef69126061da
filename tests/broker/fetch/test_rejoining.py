"""A replica outside of the ISR is idle like any other, until something may let it join."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.replication.partition import Partition
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import (
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from ottla.protocol.work import do_now
from ottla.storage.log.log import Log
from tests.broker.replication.test_isr_changes import Proposals, fetch, lead, log, partition, proposals

__all__ = ["log", "partition", "proposals"]


class Waiting:
    """A delayed fetch of a follower."""

    def __init__(self) -> None:
        self.fresh: dict[FetchPartition, None] = {}
        self.is_answered = False

    def wake(self) -> None:
        raise AssertionError("nothing has changed for the follower")

    def expire(self) -> None:
        self.is_answered = True


class Idle:
    """The session of replica 3. Its only partition is idle."""

    def __init__(self, partition: Partition) -> None:
        self.wanted = FetchPartition("t", partition.topic_id, 0, 1, 1024)
        self.session = FetchSession({("t", 0): self.wanted}, replica_id=3)
        self.sessions = FetchSessionCache(10, Random(1))
        assert self.sessions.open(self.session, 0)
        self.session.settle(self.wanted, partition.watchers)
        self.session.waiting = self.fetch = Waiting()

    @property
    def is_active(self) -> bool:
        return self.wanted in self.session.active


def changed(*of_broker: MetadataRecord) -> MetadataDelta:
    before = MetadataDelta(MetadataImage())
    before.replay(RegisterBrokerRecord(broker_id=3, broker_epoch=10))
    delta = MetadataDelta(before.apply(1, 1))
    delta.replay_all(of_broker)
    return delta


def publish(partition: Partition, idle: Idle, delta: MetadataDelta) -> None:
    work = idle.sessions.rejoin([partition], delta, delta.apply(2, 1))
    if work is not None:
        do_now(work)


def test_a_broker_that_is_unfenced_is_answered_so_that_its_next_fetch_has_the_partitions_outside_of_the_isr(
    partition: Partition, log: Log
) -> None:
    lead(partition, log, (1, 2))
    idle = Idle(partition)
    publish(partition, idle, changed(UnfenceBrokerRecord(id=3, epoch=10)))
    assert (idle.is_active, idle.fetch.is_answered) == (True, True)


def test_one_that_is_in_the_isr_already_goes_on_waiting(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2, 3))
    idle = Idle(partition)
    publish(partition, idle, changed(UnfenceBrokerRecord(id=3, epoch=10)))
    assert (idle.is_active, idle.fetch.is_answered) == (False, False)


def test_a_broker_that_is_fenced_goes_on_waiting(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2))
    idle = Idle(partition)
    publish(partition, idle, changed(FenceBrokerRecord(id=3, epoch=10)))
    publish(partition, idle, changed())
    assert (idle.is_active, idle.fetch.is_answered) == (False, False)


@pytest.mark.parametrize("accepted", [True, False])
def test_a_replica_that_could_not_be_proposed_beside_another_one_is_read_by_the_fetch_after_the_answer(
    partition: Partition, log: Log, proposals: Proposals, accepted: bool
) -> None:
    """One proposal is under way at a time."""
    lead(partition, log, (1,))
    fetch(partition, 2, 0)
    fetch(partition, 3, 0)
    assert proposals.sent == [[1, 2]]
    idle = Idle(partition)
    if accepted:
        partition.isr_altered(1, 2, [1, 2])
    else:
        partition.isr_rejected(ErrorCode.INELIGIBLE_REPLICA)
    assert idle.is_active
    fetch(partition, 3, 0)
    assert proposals.sent[1:] == [[1, 2, 3] if accepted else [1, 3]]


def test_metadata_that_gives_the_leader_another_isr_is_a_chance_too(partition: Partition, log: Log) -> None:
    lead(partition, log, (1, 2, 3))
    idle = Idle(partition)
    lead(partition, log, (1, 2), partition_epoch=2)
    assert (idle.is_active, idle.fetch.is_answered) == (True, False)
