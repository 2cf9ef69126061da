from __future__ import annotations

import pytest

from ottla.controller.decisions.elections import (
    PREFERRED,
    UNCLEAN,
    elect_leaders,
    elect_unclean_leaders,
    raised_epochs,
    return_to_preferred_leaders,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from tests.controller.harness import DecisionHarness


def elect(cluster: DecisionHarness, election_type: int, *topics: str) -> list[tuple[str, int, str]]:
    asked = [TopicNamePartitions(topic=name, partitions=[0]) for name in topics] if topics else None
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
    response = cluster.decide(elect_leaders(cluster.state, request))
    return [
        (topic.topic, result.partition_id, ErrorCode(result.error_code).name)
        for topic in response.replica_election_results
        for result in topic.partition_result
    ]


def test_the_preferred_leader_gets_the_leadership_back() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2 3", isr="2 1 3")
    assert cluster.show("orders").endswith("leader 2 epoch 0")
    assert elect(cluster, PREFERRED, "orders") == [("orders", 0, "NONE")]
    assert cluster.show("orders").endswith("leader 1 epoch 1")
    assert elect(cluster, PREFERRED, "orders") == [("orders", 0, "ELECTION_NOT_NEEDED")]


def test_a_preferred_leader_out_of_sync_stays_where_it_is() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2 3", isr="2 3")
    assert elect(cluster, PREFERRED, "orders") == [("orders", 0, "PREFERRED_LEADER_NOT_AVAILABLE")]


def test_an_election_of_all_partitions_answers_only_for_those_that_needed_one() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("a", "1 2 3")
    cluster.topic("b", "1 2 3", isr="2 1")
    assert elect(cluster, PREFERRED) == [("b", 0, "NONE")]


def test_an_unclean_election_needs_a_partition_without_leader_and_a_live_replica() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2", isr="1")
    assert elect(cluster, UNCLEAN, "orders") == [("orders", 0, "ELECTION_NOT_NEEDED")]
    cluster.fence(1)
    assert elect(cluster, UNCLEAN, "orders") == [("orders", 0, "NONE")]
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 2 recovering"
    cluster.fence(2)
    assert elect(cluster, UNCLEAN, "orders") == [("orders", 0, "ELIGIBLE_LEADERS_NOT_AVAILABLE")]


def test_what_does_not_exist_cannot_be_elected_for() -> None:
    cluster = DecisionHarness()
    assert elect(cluster, PREFERRED, "ghost") == [("ghost", 0, "UNKNOWN_TOPIC_OR_PARTITION")]
    with pytest.raises(KafkaError, match="Unknown election type 9"):
        elect(cluster, 9, "ghost")


def test_leaders_return_by_themselves_and_the_index_knows_when_nothing_is_left() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("a", "1 2 3", isr="2 1 3", partitions=3)
    assert cluster.decide(return_to_preferred_leaders(cluster.state)) is False
    assert [cluster.partition("a", index).leader for index in range(3)] == [1, 1, 1]
    assert not cluster.state.index.imbalanced


def test_leaderless_partitions_elect_uncleanly_once_their_topic_allows_it() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2", isr="1")
    cluster.fence(1)
    assert elect_unclean_leaders(cluster.state).records == []
    change = (2, "orders", {"unclean.leader.election.enable": (0, "true")})
    cluster.decide(cluster.configs.incremental_alter(cluster.state, [change], validate_only=False))
    cluster.decide(elect_unclean_leaders(cluster.state))
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 2 recovering"


def test_a_cluster_that_was_set_back_has_epochs_that_no_leader_had() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2 3", isr="2 3")
    cluster.topic("kept", "1 2 3")
    floors = {("orders", 0): 7, ("orders", 1): 7, ("deleted", 0): 9, ("kept", 0): 0}
    cluster.replay(raised_epochs(cluster.image.topics, floors))
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 7"
    assert cluster.show("kept").endswith("epoch 0")
    assert not raised_epochs(cluster.image.topics, floors)
