"""min.insync.replicas is altered, or the ELR is switched off, while partitions have an ELR: who is eligible afterwards, and how
many turns this takes.
"""

from __future__ import annotations

from ottla.controller.decisions import eligible
from ottla.controller.decisions.configs import AlterResult
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.eligible import LOOKED_AT_PER_TURN, after_elrs
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import Outcome, in_turns
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.internal_topics.metadata_records import ClearElrRecord, FeatureLevelRecord
from tests.controller.harness import DecisionHarness

CLUSTER = (ResourceType.BROKER, "")


def minimum(cluster: DecisionHarness, value: int, resource: tuple[int, str] = CLUSTER) -> None:
    def decide(state: ControlState) -> Outcome[list[AlterResult]]:
        change = (*resource, {"min.insync.replicas": (0, str(value))})
        return cluster.configs.incremental_alter(state, [change], validate_only=False)

    (result,) = cluster.decide(after_elrs(cluster.state, decide))
    assert result.error is None
    assert cluster.state.coming is None


def without_elr(state: ControlState) -> Outcome[bool]:
    return Outcome([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)], True)


def with_minimum_of_two() -> DecisionHarness:
    cluster = DecisionHarness()
    minimum(cluster, 2)
    return cluster


def test_a_partition_whose_brokers_are_down_keeps_those_who_may_lead_when_the_minimum_is_altered() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "2")
    cluster.fence(2)
    assert cluster.show("orders") == "replicas 2 isr - elr 2 last 2 no leader epoch 1"
    minimum(cluster, 1)
    minimum(cluster, 1, (ResourceType.TOPIC, "orders"))
    assert cluster.show("orders") == "replicas 2 isr - elr 2 last 2 no leader epoch 1"
    cluster.unfence(2)
    assert cluster.show("orders") == "replicas 2 isr 2 leader 2 epoch 2"


def test_a_lower_minimum_lets_the_watermark_move_so_no_replica_outside_the_isr_is_eligible_any_more() -> None:
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.fence(2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 elr 2 leader 1 epoch 0"
    epoch = cluster.partition("orders").partition_epoch
    minimum(cluster, 1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 leader 1 epoch 0"
    assert cluster.partition("orders").partition_epoch == epoch + 1
    assert cluster.turns == [1, 1], "the ELR is empty in the log before the lower minimum"


def test_a_higher_or_equal_minimum_changes_nobodys_eligibility() -> None:
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.fence(2)
    for value in (2, 3):
        minimum(cluster, value)
        assert cluster.show("orders") == "replicas 1 2 3 isr 1 elr 2 leader 1 epoch 0"
        assert cluster.turns == [1]


def test_a_topic_with_a_minimum_of_its_own_keeps_its_elr_when_the_clusters_is_lowered() -> None:
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2", min_isr=2)
    cluster.fence(2)
    minimum(cluster, 1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 elr 2 leader 1 epoch 0"


def many_with_elr() -> DecisionHarness:
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2", partitions=2 * PARTITIONS_PER_TURN + 5)
    cluster.fence(2)
    for _ in range(2):
        rest = list(cluster.state.index.in_isr(2))
        cluster.replay(cluster.state.leader_and_isr_changes(rest, remove=2))
    return cluster


def test_thousands_of_elrs_are_emptied_in_turns_and_those_of_leaderless_partitions_are_looked_at_in_turns() -> None:
    cluster = many_with_elr()
    minimum(cluster, 1)
    assert cluster.turns == [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN, 5, 1]
    assert not cluster.state.index.with_elr

    cluster = DecisionHarness()
    cluster.topic("orders", "2", partitions=LOOKED_AT_PER_TURN + 5)
    cluster.fence(2)
    while rest := list(cluster.state.index.in_isr(2)):
        cluster.replay(cluster.state.leader_and_isr_changes(rest, remove=2))
    minimum(cluster, 1)
    assert cluster.turns == [0, 1]
    assert len(cluster.state.index.with_elr) == LOOKED_AT_PER_TURN + 5


def test_a_replica_that_leaves_the_isr_between_two_turns_is_not_eligible_under_the_coming_minimum() -> None:
    cluster = many_with_elr()
    cluster.topic("late", "1 3")
    decide = in_turns(lambda state: after_elrs(state, lowered(cluster)))
    cluster.decide(decide(cluster.state))
    cluster.fence(3)
    assert cluster.show("late") == "replicas 1 3 isr 1 leader 1 epoch 0", "with a minimum of two, 3 would be eligible"
    while cluster.decide(decide(cluster.state)) is None:
        pass
    assert cluster.state.min_isr(cluster.image.topics.by_name("late")) == 1


def test_of_two_alterations_at_once_the_second_waits() -> None:
    cluster = many_with_elr()
    first, second = (in_turns(lambda state: after_elrs(state, lowered(cluster))) for _ in range(2))
    assert cluster.decide(first(cluster.state)) is None
    assert second(cluster.state) == ([], None)
    while cluster.decide(first(cluster.state)) is None:
        assert second(cluster.state) == ([], None)
    assert cluster.decide(second(cluster.state)) is not None


def test_an_alteration_that_is_only_validated_empties_nothing() -> None:
    cluster = many_with_elr()
    before = len(cluster.state.index.with_elr)
    cluster.decide(after_elrs(cluster.state, lowered(cluster, validate_only=True)))
    assert cluster.turns == [0] and len(cluster.state.index.with_elr) == before


def test_the_clear_elr_record_of_a_kafka_controller_bumps_the_partition_epoch_where_it_changes_something() -> None:
    """TopicDelta.maybeClearElr does the same. A node that counted epochs in another way would reject every later AlterPartition
    of the others.
    """
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.fence(2)
    cluster.topic("payments", "1 3")
    epochs = {name: cluster.partition(name).partition_epoch for name in ("orders", "payments")}
    for name in ("orders", ""):
        cluster.replay([ClearElrRecord(topic_name=name)])
        assert cluster.show("orders") == "replicas 1 2 3 isr 1 leader 1 epoch 0"
        assert cluster.partition("orders").partition_epoch == epochs["orders"] + 1
        assert cluster.partition("payments").partition_epoch == epochs["payments"]


def test_without_the_feature_a_leaderless_partition_waits_for_those_who_were_eligible() -> None:
    cluster = with_minimum_of_two()
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.topic("payments", "3 1 2", isr="3 1")
    cluster.fence(2, 1)
    assert cluster.show("orders") == "replicas 1 2 3 isr - elr 1 2 last 1 no leader epoch 1"
    assert cluster.show("payments") == "replicas 3 1 2 isr 3 elr 1 leader 3 epoch 0"
    cluster.decide(after_elrs(cluster.state, without_elr))
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 2 no leader epoch 1"
    assert cluster.show("payments") == "replicas 3 1 2 isr 3 leader 3 epoch 0"
    cluster.unfence(1)
    assert "leader 1" in cluster.show("orders")


def lowered(cluster: DecisionHarness, *, validate_only: bool = False) -> eligible.Decide[list[AlterResult]]:
    change = (*CLUSTER, {"min.insync.replicas": (0, "1")})
    return lambda state: cluster.configs.incremental_alter(state, [change], validate_only=validate_only)
