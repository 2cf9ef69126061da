"""Decisions about more partitions than one turn of the loop has time for: how many each turn takes, and that all partitions get
a decision.
"""

from __future__ import annotations

import pytest

from ottla.controller.decisions.brokers import fence_records, unfence_records
from ottla.controller.decisions.elections import ELECTIONS_MAX, elect_unclean_leaders, return_to_preferred_leaders
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN, electable, left_by_broker, settle
from ottla.controller.decisions.partition_change import PartitionChange
from tests.controller.decisions.test_heartbeats import Beating
from tests.controller.harness import DecisionHarness, topic_id

MANY = 2 * PARTITIONS_PER_TURN + 50


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the indexes of the partitions that were decided about."""
    indexes: list[int] = []
    record = PartitionChange.record

    def counted(self: PartitionChange) -> object:
        indexes.append(self.index)
        return record(self)

    monkeypatch.setattr(PartitionChange, "record", counted)
    return indexes


def settle_all(cluster: DecisionHarness, broker_id: int) -> int:
    """Settle all partitions, and return the number of turns."""
    turns = 0
    partitions = left_by_broker(cluster.state, broker_id)
    while partitions:
        turns += 1
        cluster.decide(settle(cluster.state, partitions))
        del partitions[:PARTITIONS_PER_TURN]
    return turns


def test_fencing_decides_about_a_bounded_number_of_partitions_at_once_those_it_leads_first() -> None:
    cluster = DecisionHarness()
    cluster.topic("followed", "2 1 3", partitions=MANY)
    cluster.topic("led", "1 2 3", partitions=10)
    records = fence_records(cluster.state, 1)
    assert len(records) == PARTITIONS_PER_TURN + 1
    assert [each.topic_id for each in records[:10]] == [topic_id("led")] * 10
    cluster.replay(records)
    assert cluster.image.cluster.brokers[1].fenced
    assert settle_all(cluster, 1) == 2
    assert not cluster.state.index.in_isr(1)
    assert cluster.show("followed", MANY - 1) == "replicas 2 1 3 isr 2 3 leader 2 epoch 0"


def test_one_that_comes_back_decides_only_about_what_it_could_lead(decided: list[int]) -> None:
    cluster = DecisionHarness(4)
    cluster.topic("theirs", "1 2 3", min_isr=2, partitions=MANY)
    cluster.topic("its", "4", partitions=3)
    cluster.fence(1, 2, 3, 4)
    for broker_id in (1, 2, 3):
        settle_all(cluster, broker_id)
    assert len(cluster.state.index.leaderless_partitions) == MANY + 3
    decided.clear()
    records = unfence_records(cluster.state, 4, cluster.epoch(4))
    assert (len(decided), len(records)) == (3, 4), "of all partitions without a leader"
    cluster.replay(records)
    assert not cluster.state.index.leaderless_of(4)


def test_one_that_could_lead_everything_leads_it_after_some_turns() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2, partitions=MANY)
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
        settle_all(cluster, broker_id)
    records = unfence_records(cluster.state, 3, cluster.epoch(3))
    assert len(records) == PARTITIONS_PER_TURN + 1
    cluster.replay(records)
    assert settle_all(cluster, 3) == 2
    assert not cluster.state.index.leaderless_partitions
    assert cluster.show("orders", MANY - 1) == "replicas 1 2 3 isr 3 elr 2 leader 3 epoch 4"


def test_what_a_term_left_undone_is_found_by_the_next() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", partitions=MANY)
    cluster.replay(fence_records(cluster.state, 1))
    left = [key for broker_id in cluster.image.cluster.brokers for key in left_by_broker(cluster.state, broker_id)]
    assert sorted(left) == sorted(cluster.state.index.in_isr(1))
    assert len(left) == MANY - PARTITIONS_PER_TURN


def test_a_partition_that_was_deleted_meanwhile_is_passed_over() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3")
    assert settle(cluster.state, [(topic_id("ghost"), 0), (topic_id("orders"), 9)]).records == []


def test_with_unclean_elections_allowed_any_replica_is_looked_at() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("safe", "1 2", isr="1")
    cluster.topic("careless", "1 2", isr="1", unclean_leader_election_enable=True)
    cluster.fence(2, 1)
    assert electable(cluster.state, 2) == [(topic_id("careless"), 0)]
    cluster.unfence(2)
    assert cluster.show("careless") == "replicas 1 2 isr 2 leader 2 epoch 2 recovering"
    assert cluster.show("safe") == "replicas 1 2 isr 1 no leader epoch 1"


def test_the_periodic_elections_decide_only_where_another_could_lead(decided: list[int]) -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("out of sync", "1 2 3", isr="2 3", partitions=MANY)
    cluster.topic("in sync", "1 2 3", isr="2 1 3", partitions=2)
    cluster.topic("down", "1", partitions=MANY)
    assert len(return_to_preferred_leaders(cluster.state).records) == 2
    assert len(decided) == 2
    cluster.fence(1)
    settle_all(cluster, 1)
    decided.clear()
    assert elect_unclean_leaders(cluster.state).records == []
    assert not decided


def test_a_broker_that_shuts_down_has_its_leaders_moved_away_in_several_heartbeats() -> None:
    beating = Beating()
    cluster = beating.cluster
    cluster.topic("orders", "1 2 3", partitions=MANY)
    beats, biggest = 0, 0
    while not (beats and beating.beat(1, shut_down=True, offset=0).should_shut_down):
        before = cluster.offset
        beating.beat(1, shut_down=True, offset=0)
        for other in (2, 3):
            beating.beat(other, offset=cluster.offset + 10)
        biggest = max(biggest, cluster.offset - before)
        beats += 1
        assert beats < 20
    assert biggest <= PARTITIONS_PER_TURN + 1
    assert not cluster.state.index.leads_any(1)


def test_periodic_elections_are_bounded_and_say_that_there_is_more_to_do() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", isr="2 1 3", partitions=2 * ELECTIONS_MAX + 5)
    decided = []
    is_more = True
    while is_more:
        outcome = return_to_preferred_leaders(cluster.state)
        decided.append(len(outcome.records))
        is_more = cluster.decide(outcome)
    assert decided == [ELECTIONS_MAX, ELECTIONS_MAX, 5]
    assert not cluster.state.index.imbalanced
