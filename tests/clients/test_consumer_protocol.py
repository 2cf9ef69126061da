"""Consumers with group.protocol=consumer (KIP-848), as users write them with confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.testing import Cluster
from tests.broker.share.member import set_group
from tests.broker.wire import Wire
from tests.clients.conftest import SOONER
from tests.clients.test_confluent_kafka import consume, ensure_topic
from tests.cluster.shared import STEADY

WAIT_SECONDS_MAX = 60
#: The heartbeat interval. librdkafka (2.16) gives up heartbeats that are not answered within it.
INTERVAL_MS = 1_000


def member(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def poll_until(consumers: list[Consumer], is_so: Callable[[], bool]) -> list[Any]:
    """Poll all consumers in turn until `is_so`; return the messages that came meanwhile, which are committed."""
    got = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                consumer.commit(message=message, asynchronous=False)
                got.append(message)
    return got


def counts(consumers: list[Consumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), partition=number % 4)
    assert producer.flush(30) == 0


def test_members_share_the_partitions_commit_leave_and_go_on_where_the_group_was(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=4)
    produce(bootstrap, topic, 100)
    first, second = member(bootstrap, topic), member(bootstrap, topic)
    first.subscribe([topic])
    values = {message.value() for message in consume(first, 100)}
    assert len(values) == 100
    first.commit(asynchronous=False)
    second.subscribe([topic])
    assert not poll_until([first, second], lambda: counts([first, second]) == [2, 2])

    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([topic])[topic].result(10)
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == ConsumerGroupType.CONSUMER
    assert sorted(len(m.assignment.topic_partitions) for m in described.members) == [2, 2]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(10)
    assert topic in {group.group_id for group in listed.valid}

    produce(bootstrap, topic, 20)
    partitions = [TopicPartition(topic, partition) for partition in range(4)]

    def is_all_committed() -> bool:
        return [p.offset for p in first.committed(partitions, timeout=10)] == [30, 30, 30, 30]

    assert len(poll_until([first, second], is_all_committed)) == 20
    first.close()
    assert not poll_until([second], lambda: counts([second]) == [4])
    assert [p.offset for p in second.committed(partitions, timeout=10)] == [30, 30, 30, 30]
    second.close()
    admin.delete_consumer_groups([topic])[topic].result(10)


def test_a_regular_expression_of_topics_that_were_just_made_has_them_long_before_the_second_heartbeat(
    bootstrap: str, topic: str
) -> None:
    """Before the fix it took a whole heartbeat interval, which is a quarter of a minute here."""
    with Wire(int(bootstrap.rpartition(":")[2])) as wire:
        set_group(wire, topic, consumer_heartbeat_interval_ms="15000")
    ensure_topic(bootstrap, topic, partitions=4)
    consumer = member(bootstrap, topic)
    begun = time.monotonic()
    consumer.subscribe([f"^{topic}.*"])
    poll_until([consumer], lambda: counts([consumer]) == [4])
    assert time.monotonic() - begun < 12
    consumer.close()


def test_a_static_member_comes_back_to_its_partitions(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=4)
    names = {"a": member(bootstrap, topic, **{"group.instance.id": "a"}), "b": member(bootstrap, topic)}
    for consumer in names.values():
        consumer.subscribe([topic])
    poll_until(list(names.values()), lambda: counts(list(names.values())) == [2, 2])
    before = {p.partition for p in names["a"].assignment()}
    names["a"].close()
    names["a"] = member(bootstrap, topic, **{"group.instance.id": "a"})
    names["a"].subscribe([topic])
    poll_until(list(names.values()), lambda: counts(list(names.values())) == [2, 2])
    assert {p.partition for p in names["a"].assignment()} == before
    for consumer in names.values():
        consumer.close()


def test_a_topic_that_grows_is_assigned_again(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=2)
    consumer = member(bootstrap, topic, **{"group.remote.assignor": "range"})
    consumer.subscribe([topic])
    poll_until([consumer], lambda: counts([consumer]) == [2])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    poll_until([consumer], lambda: counts([consumer]) == [5])
    consumer.close()


@pytest.mark.chaos
def test_an_assignment_whose_response_came_too_late_is_sent_again() -> None:
    """librdkafka does not request it again. Before the fix the members waited for the rebalance timeout, which is five
    minutes.
    """
    intervals = {f"group_consumer_{which}heartbeat_interval_ms": str(INTERVAL_MS) for which in ("", "min_")}
    with Cluster(1, **intervals) as cluster:
        cluster.topic("t", partitions=4)
        first, second = member(cluster.bootstrap, "g"), member(cluster.bootstrap, "g")
        first.subscribe(["t"])
        poll_until([first], lambda: counts([first]) == [4])
        cluster.delay("ConsumerGroupHeartbeat", 2.5 * INTERVAL_MS / 1000)
        second.subscribe(["t"])
        poll_until([first, second], lambda: cluster.log(1).count("Computed a new target assignment") == 2)
        begun = time.monotonic()
        # By then the response to one of the first member's heartbeats has taken two partitions away, and the client has given
        # that heartbeat up.
        poll_until([first, second], lambda: time.monotonic() - begun > 4 * INTERVAL_MS / 1000)
        assert counts([first, second]) == [0, 4]
        cluster.heal()
        poll_until([first, second], lambda: counts([first, second]) == [2, 2])
        first.close()
        second.close()


@pytest.mark.chaos
def test_the_group_goes_on_when_its_coordinator_is_killed() -> None:
    """There are three nodes and three members. The coordinator of the group is killed: no record is missed, and each partition
    has one owner.
    """
    topic = "orders"
    with Cluster(3, **{name.replace(".", "_"): value for name, value in SOONER.items()}, **STEADY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = NewTopic(topic, num_partitions=6, replication_factor=3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[topic].result(30)
        consumers = [member(cluster.bootstrap, "g", **{"enable.auto.commit": True}) for _ in range(3)]
        for consumer in consumers:
            consumer.subscribe([topic])
        poll_until(consumers, lambda: counts(consumers) == [2, 2, 2])
        owned = [sorted(p.partition for p in consumer.assignment()) for consumer in consumers]

        coordinator = admin.describe_consumer_groups(["g"])["g"].result(30).coordinator.id
        cluster.kill(coordinator)
        wanted = {str(number).encode() for number in range(120)}
        got: set[bytes | None] = set()
        produce(cluster.bootstrap, topic, 120)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while got < wanted and time.monotonic() < deadline:
            for consumer in consumers:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    got.add(message.value())
        assert got == wanted

        def is_led_again() -> bool:
            try:
                described = admin.describe_consumer_groups(["g"])["g"].result(10)
            # The future raises TimeoutError: the client is looking for the coordinator.
            except (
                KafkaException,
                TimeoutError,
            ):
                return False
            return described.coordinator.id != coordinator and described.state == ConsumerGroupState.STABLE

        poll_until(consumers, is_led_again)
        # The members go on: a new coordinator causes no rebalance.
        assert [sorted(p.partition for p in consumer.assignment()) for consumer in consumers] == owned
        for consumer in consumers:
            consumer.close()
