"""A broker in thousands of ISRs registers, is unregistered, or loses a directory: how many partitions each turn decides about,
and what is left if the decision ends early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.decisions.brokers import register_broker, unregister_broker
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN, Leaving, held_by
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.partition_change import PartitionChange
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.decisions.test_brokers import registration
from tests.controller.decisions.test_heartbeats import Beating
from tests.controller.harness import DecisionHarness, directory, topic_id

MANY = 2 * PARTITIONS_PER_TURN + 50


class Turns:
    """Decides until there is a response, and counts the partitions of each turn."""

    def __init__(self, cluster: DecisionHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.decided: list[int] = []
        self.records: list[Any] = []
        record = PartitionChange.record

        def counted(change: PartitionChange) -> object:
            self.decided[-1] += 1
            return record(change)

        monkeypatch.setattr(PartitionChange, "record", counted)

    def one(self, decide: Callable[[], Outcome[Any]]) -> Any:
        self.decided.append(0)
        outcome = decide()
        self.records += outcome.records
        return self.cluster.decide(outcome)

    def all(self, decide: Callable[[], Outcome[Any]]) -> Any:
        while (response := self.one(decide)) is None:
            assert len(self.decided) < 20
        return response


def registering(cluster: DecisionHarness, leaving: Leaving, **fields: Any) -> Callable[[], Outcome[Any]]:
    request = registration(**fields)
    return lambda: register_broker(cluster.state, request, cluster.offset + 1_000, has_session=False, leaving=leaving)


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize("previous_epoch", [101, -1])
def test_a_registration_decides_about_a_bounded_number_of_partitions_in_each_turn(
    elr: bool, previous_epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = DecisionHarness(elr=elr)
    cluster.topic("orders", "1 2 3", min_isr=3, partitions=MANY)
    turns = Turns(cluster, monkeypatch)
    epoch = turns.all(registering(cluster, Leaving(), previous_broker_epoch=previous_epoch))
    assert turns.decided == [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 50]
    registrations = [record for record in turns.records if isinstance(record, RegisterBrokerRecord)]
    assert registrations == turns.records[-1:] and registrations[0].broker_epoch == epoch
    orders = cluster.image.topics.by_name("orders")
    assert orders is not None
    held = {(p.isr, p.elr) for p in orders.partitions.values()}
    assert held == {((2, 3), (1,) if elr and previous_epoch == 101 else ())}
    assert cluster.image.cluster.brokers[1].fenced


def test_the_last_members_of_isrs_that_stay_in_them_without_the_elr_end_the_registration_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("alone", "1", partitions=MANY)
    turns = Turns(cluster, monkeypatch)
    turns.all(registering(cluster, Leaving()))
    assert turns.decided == [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 50]
    assert cluster.show("alone", MANY - 1) == "replicas 1 isr 1 no leader epoch 1"


def test_a_term_that_ends_between_two_turns_leaves_a_fenced_broker_and_the_next_registration_does_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2", min_isr=2, partitions=MANY)
    turns = Turns(cluster, monkeypatch)
    assert turns.one(registering(cluster, Leaving())) is None
    former = cluster.image.cluster.brokers[1]
    assert former.fenced and former.epoch == 101
    assert len(held_by(cluster.state, 1)) == MANY - PARTITIONS_PER_TURN
    assert turns.all(registering(cluster, Leaving())) > 101
    assert not held_by(cluster.state, 1)
    assert max(turns.decided) == PARTITIONS_PER_TURN


def test_what_other_decisions_changed_between_two_turns_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the turns a partition comes back into the ISR, one is created and one deleted; the registration record follows
    the last turn.
    """
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2, partitions=MANY)
    cluster.topic("gone", "1 2 3", partitions=10)
    turns, leaving = Turns(cluster, monkeypatch), Leaving()
    decide = registering(cluster, leaving)
    assert turns.one(decide) is None
    back = cluster.partition("orders")
    assert 1 not in back.isr, "decided in the first turn"
    cluster.replay([PartitionChangeRecord(topic_id=topic_id("orders"), partition_id=0, isr=[1, 2, 3], leader=1)])
    cluster.replay([RemoveTopicRecord(topic_id=topic_id("gone"))])
    cluster.topic("new", "2 1 3", partitions=3)
    turns.all(decide)
    assert not held_by(cluster.state, 1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 3"


def test_of_two_registrations_at_once_each_is_judged_by_what_is_registered_in_its_last_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2, partitions=MANY)
    turns = Turns(cluster, monkeypatch)
    slow = registering(cluster, Leaving(), incarnation_id=b"the slow process")
    fast = registering(cluster, Leaving(), incarnation_id=b"the fast process")
    assert turns.one(slow) is None
    fast_epoch = turns.all(fast)
    # The replicas of the fast process caught up meanwhile, so the slow one has to take the broker out of these ISRs, too.
    cluster.unfence(1)
    changes = [
        PartitionChangeRecord(topic_id=topic_id("orders"), partition_id=index, isr=[1, 2, 3]) for index in range(5)
    ]
    cluster.replay(changes)
    slow_epoch = turns.all(slow)
    assert slow_epoch > fast_epoch
    assert not held_by(cluster.state, 1)
    broker = cluster.image.cluster.brokers[1]
    assert (broker.epoch, broker.incarnation_id, broker.fenced) == (slow_epoch, b"the slow process", True)


def test_a_registration_whose_broker_was_let_in_meanwhile_is_refused_and_the_broker_unregistered_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2, partitions=MANY)
    turns, leaving, has_session = Turns(cluster, monkeypatch), Leaving(), False

    def decide() -> Outcome[Any]:
        return register_broker(cluster.state, registration(), 5_000, has_session=has_session, leaving=leaving)

    assert turns.one(decide) is None
    has_session = True  # the former incarnation has sent a heartbeat
    with pytest.raises(KafkaError) as refused:
        turns.one(decide)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    has_session = False
    turns.all(lambda: unregister_broker(cluster.state, UnregisterBrokerRequest(broker_id=1)))
    assert turns.one(decide) is not None, "nothing is left of the turns before"


def test_the_elr_enabled_between_two_turns_makes_a_registration_look_at_all_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last member of an ISR stays in it without the ELR; with the ELR a crashed member is not eligible."""
    cluster = DecisionHarness(elr=False)
    cluster.topic("alone", "1", partitions=MANY)
    turns = Turns(cluster, monkeypatch)
    decide = registering(cluster, Leaving())
    assert turns.one(decide) is None
    cluster.replay([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    turns.all(decide)
    assert not held_by(cluster.state, 1)
    assert cluster.show("alone") == "replicas 1 isr - last 1 no leader epoch 1"


def test_a_broker_is_unregistered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=3, partitions=MANY)
    turns, leaving = Turns(cluster, monkeypatch), Leaving()
    turns.all(lambda: unregister_broker(cluster.state, UnregisterBrokerRequest(broker_id=1), leaving))
    assert turns.decided == [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 50]
    assert isinstance(turns.records[-1], UnregisterBrokerRecord)
    assert cluster.show("orders", MANY - 1) == "replicas 1 2 3 isr 2 3 leader 2 epoch 1"


@pytest.mark.parametrize("directories", [1, 2])
def test_failed_directories_are_given_up_in_turns(directories: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker loses one of its two directories, or its only one; then it is fenced as well."""
    beating = Beating(brokers=0)
    cluster = beating.cluster
    for broker_id in (1, 2):
        cluster.broker(broker_id, directories=directories)
        beating.heartbeats.register(broker_id, False, 0)
    cluster.topic("orders", "1 2", partitions=MANY)
    turns, leaving = Turns(cluster, monkeypatch), Leaving()
    answer = turns.all(lambda: beating.decided(1, offline=[directory(1)], leaving=leaving))
    assert max(turns.decided) <= PARTITIONS_PER_TURN
    assert not held_by(cluster.state, 1)
    broker = cluster.image.cluster.brokers[1]
    assert answer.is_fenced == broker.fenced == (directories == 1)
    assert broker.directories == ((directory(1),) if directories == 1 else (directory(1, 2),))
