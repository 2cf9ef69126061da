from __future__ import annotations

import pytest

from ottla.controller.decisions.reassignment import alter_partition_reassignments, list_partition_reassignments
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from tests.controller.decisions.test_alter_partition import alter
from tests.controller.harness import DecisionHarness, numbers
from tests.controller.images import same_content


def reassign(
    cluster: DecisionHarness, target: str | None, *, name: str = "orders", factor_may_change: bool = True
) -> str:
    replicas = None if target is None else numbers(target)
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor_may_change,
        topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])],
    )
    response = cluster.decide(alter_partition_reassignments(cluster.state, request))
    return ErrorCode(response.responses[0].partitions[0].error_code).name


def ongoing(cluster: DecisionHarness, *names: str) -> dict[str, tuple[list[int], list[int]]]:
    topics = [TopicPartitionIndexes(name=name, partition_indexes=[0, 1]) for name in names] or None
    _, response = list_partition_reassignments(cluster.state, ListPartitionReassignmentsRequest(topics=topics))
    return {
        topic.name: (each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    }


def moving() -> DecisionHarness:
    cluster = DecisionHarness(brokers=6)
    cluster.topic("orders", "1 2 3")
    cluster.topic("still", "1 2 3")
    assert reassign(cluster, "4 5 6") == "NONE"
    return cluster


def test_a_move_goes_through_adding_catching_up_and_dropping() -> None:
    cluster = moving()
    assert cluster.show("orders") == ("replicas 4 5 6 1 2 3 isr 1 2 3 adding 4 5 6 removing 1 2 3 leader 1 epoch 0")
    assert ongoing(cluster) == {"orders": ([4, 5, 6], [1, 2, 3])}
    assert ongoing(cluster, "still", "ghost", "orders") == {"orders": ([4, 5, 6], [1, 2, 3])}
    assert alter(cluster, "1 2 3 4 5").error_code == 0
    assert alter(cluster, "1 2 3 4 5 6").error_code == ErrorCode.NEW_LEADER_ELECTED, "and yet it is done"
    assert cluster.show("orders") == "replicas 4 5 6 isr 4 5 6 leader 4 epoch 1"
    assert ongoing(cluster) == {}


def test_changing_the_order_is_done_at_once() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3")
    assert reassign(cluster, "3 1 2") == "NONE"
    assert cluster.show("orders") == "replicas 3 1 2 isr 1 2 3 leader 1 epoch 0"


def test_fewer_replicas_are_done_at_once_with_a_new_epoch() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3")
    assert reassign(cluster, "1 2") == "NONE"
    assert cluster.show("orders") == "replicas 1 2 isr 1 2 leader 1 epoch 1"


def test_a_cancelled_move_goes_back() -> None:
    cluster = moving()
    alter(cluster, "1 2 3 4")
    assert reassign(cluster, None) == "NONE"
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 2 3 leader 1 epoch 1"
    assert reassign(cluster, None) == "NO_REASSIGNMENT_IN_PROGRESS"


def test_a_cancelled_reassignment_to_replicas_out_of_the_isr_needs_unclean_election_enabled() -> None:
    cluster = DecisionHarness(brokers=4, elr=False)
    cluster.topic("orders", "1 2")
    reassign(cluster, "3 4")
    alter(cluster, "1 2 3")
    cluster.fence(1, 2)
    assert cluster.partition("orders").isr == (3,)
    assert reassign(cluster, None) == "INVALID_REPLICA_ASSIGNMENT"


def test_a_new_target_replaces_the_old_one() -> None:
    cluster = moving()
    assert reassign(cluster, "1 2 4") == "NONE"
    assert cluster.show("orders") == "replicas 1 2 4 3 5 6 isr 1 2 3 removing 3 5 6 leader 1 epoch 0"


@pytest.mark.parametrize(
    ("target", "name", "code"),
    [
        ("1 9", "orders", "INVALID_REPLICA_ASSIGNMENT"),
        ("1 1", "orders", "INVALID_REPLICA_ASSIGNMENT"),
        ("", "orders", "INVALID_REPLICA_ASSIGNMENT"),
        ("1", "ghost", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_target_that_cannot_be_is_refused(target: str, name: str, code: str) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3")
    before = cluster.image
    assert reassign(cluster, target, name=name) == code
    assert same_content(cluster.image, before)


def test_the_replication_factor_changes_only_if_it_may() -> None:
    cluster = DecisionHarness(brokers=4)
    cluster.topic("orders", "1 2 3")
    assert reassign(cluster, "1 2", factor_may_change=False) == "INVALID_REPLICATION_FACTOR"
    assert reassign(cluster, "1 2 4", factor_may_change=False) == "NONE"
