"""AlterPartition is a compare-and-set on leader epoch, partition epoch and broker epochs (invariant 22)."""

from __future__ import annotations

import pytest

from ottla.controller.decisions.alter_partition import alter_partition
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataRequest,
    PartitionDataResponse,
    TopicDataRequest,
)
from tests.controller.harness import DecisionHarness, numbers, topic_id
from tests.controller.images import same_content


def alter(
    cluster: DecisionHarness,
    isr: str,
    *,
    by: int = 1,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    epochs: dict[int, int] | None = None,
    recovery: int = 0,
    broker_epoch: int | None = None,
    name: str = "orders",
) -> PartitionDataResponse:
    current = cluster.partition("orders")
    wanted = PartitionDataRequest(
        partition_index=0,
        leader_epoch=current.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=current.partition_epoch if partition_epoch is None else partition_epoch,
        leader_recovery_state=recovery,
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, 100 + each)) for each in numbers(isr)
        ],
    )
    request = AlterPartitionRequest(
        broker_id=by,
        broker_epoch=cluster.epoch(by) if broker_epoch is None else broker_epoch,
        topics=[TopicDataRequest(topic_id=topic_id(name), partitions=[wanted])],
    )
    response = cluster.decide(alter_partition(cluster.state, request))
    result: PartitionDataResponse = response.topics[0].partitions[0]
    return result


def cluster_of_three() -> DecisionHarness:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", isr="1 2", min_isr=2)
    return cluster


def test_a_leader_expands_and_shrinks_its_isr() -> None:
    cluster = cluster_of_three()
    answer = alter(cluster, "1 2 3")
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [1, 2, 3], 0, 1)
    answer = alter(cluster, "1")
    assert (answer.isr, answer.partition_epoch) == ([1], 2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 elr 2 3 leader 1 epoch 0"


def test_version_2_names_the_isr_without_broker_epochs() -> None:
    cluster = cluster_of_three()
    wanted = PartitionDataRequest(partition_index=0, new_isr=[1, 2, 3])
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.epoch(1),
        topics=[TopicDataRequest(topic_id=topic_id("orders"), partitions=[wanted])],
    )
    pieces: list[bytes] = []
    encoder(AlterPartitionRequest, 2)(request, pieces)
    data = b"".join(pieces)
    received, _ = decoder(AlterPartitionRequest, 2)(data, 0, len(data))
    response = cluster.decide(alter_partition(cluster.state, received))
    assert response.topics[0].partitions[0].isr == [1, 2, 3]
    assert cluster.partition("orders").isr == (1, 2, 3)


def test_asking_for_what_is_already_so_is_answered_without_a_record() -> None:
    cluster = cluster_of_three()
    answer = alter(cluster, "1 2")
    assert (answer.error_code, answer.partition_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("isr", "arguments", "code"),
    [
        ("1 2 3", {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ("1 2 3", {"partition_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ("1 2 3", {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ("1 2 3", {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ("1 2 3", {"by": 2}, ErrorCode.INVALID_REQUEST),
        ("2 3", {}, ErrorCode.INVALID_REQUEST),
        ("", {}, ErrorCode.INVALID_REQUEST),
        ("1 1", {}, ErrorCode.INVALID_REQUEST),
        ("1 4", {}, ErrorCode.INVALID_REQUEST),
        ("1 2 3", {"epochs": {3: 99}}, ErrorCode.INELIGIBLE_REPLICA),
        ("1", {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        ("1", {"recovery": 5}, ErrorCode.INVALID_REQUEST),
        ("1 2 3", {"name": "ghost"}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_stale_or_senseless_request_changes_nothing(isr: str, arguments: dict[str, object], code: ErrorCode) -> None:
    cluster = cluster_of_three()
    before = cluster.image
    assert ErrorCode(alter(cluster, isr, **arguments).error_code) is code
    assert same_content(cluster.image, before)


def test_a_fenced_replica_may_not_join() -> None:
    cluster = cluster_of_three()
    cluster.fence(3)
    assert alter(cluster, "1 2 3").error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_epoch_that_the_leader_does_not_know_is_not_checked() -> None:
    cluster = cluster_of_three()
    assert alter(cluster, "1 2 3", epochs={3: -1}).error_code == 0


def test_a_request_of_a_former_incarnation_is_refused_as_a_whole() -> None:
    cluster = cluster_of_three()
    with pytest.raises(KafkaError) as refused:
        alter(cluster, "1 2 3", broker_epoch=1)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_recovered_says_so() -> None:
    cluster = DecisionHarness(brokers=2, elr=False)
    cluster.topic("orders", "1 2", isr="1", unclean_leader_election_enable=True)
    cluster.fence(1)
    assert cluster.show("orders").endswith("isr 2 leader 2 epoch 1 recovering")
    cluster.unfence(1)
    assert alter(cluster, "2 1", by=2, recovery=1).error_code == ErrorCode.INVALID_REQUEST, "alone until recovered"
    assert alter(cluster, "2", by=2).leader_recovery_state == 0
    assert cluster.show("orders").endswith("isr 2 leader 2 epoch 1")
