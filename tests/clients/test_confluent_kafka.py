"""The calls of a typical confluent-kafka programme: ensure a topic, produce with callbacks, consume with manual commits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

WAIT_SECONDS_MAX = 30


def ensure_topic(bootstrap: str, topic: str, partitions: int = 3, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=WAIT_SECONDS_MAX).topics:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[topic].result(10)


def consume(consumer: Consumer, count: int) -> list[Any]:
    """Poll until `count` messages have come; an end of partition is not an error."""
    got: list[Any] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                continue
            raise KafkaException(message.error())
        got.append(message)
    return got


def reader(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45000,
            "heartbeat.interval.ms": 1000,
            **config,
        }
    )


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keyed_events_are_delivered_with_reports_and_read_in_key_order(
    bootstrap: str, topic: str, compression: str
) -> None:
    ensure_topic(bootstrap, topic)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "retries": 5,
            "retry.backoff.ms": 500,
            "compression.type": compression,
            "linger.ms": 10,
            "batch.size": 65536,
        }
    )
    reports: list[tuple[int, int]] = []

    def delivery_report(error: Any, message: Any) -> None:
        assert error is None, error
        reports.append((message.partition(), message.offset()))

    events = [{"user_id": f"u-{i % 3}", "action": "click", "n": i} for i in range(300)]
    for event in events:
        producer.produce(
            topic, key=event["user_id"].encode(), value=json.dumps(event).encode(), on_delivery=delivery_report
        )
        producer.poll(0)
    assert producer.flush(timeout=30) == 0
    assert len(reports) == len(events)

    consumer = reader(
        bootstrap, f"{topic}-g", **{"partition.assignment.strategy": "cooperative-sticky", "fetch.wait.max.ms": 500}
    )
    consumer.subscribe([topic])
    got = consume(consumer, len(events))
    for message in got[:3]:
        consumer.commit(message=message, asynchronous=False)
    consumer.close()
    by_user: dict[str, list[int]] = {}
    for message in got:
        event = json.loads(message.value())
        assert message.key().decode() == event["user_id"]
        by_user.setdefault(event["user_id"], []).append(event["n"])
    assert {user: len(ns) for user, ns in by_user.items()} == {"u-0": 100, "u-1": 100, "u-2": 100}
    assert all(ns == sorted(ns) for ns in by_user.values()), "records of one key came out of order"


def test_a_second_consumer_of_the_group_continues_after_the_committed_offset(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        producer.produce(topic, value=str(i).encode())
    producer.flush(10)
    first = reader(bootstrap, f"{topic}-g")
    first.subscribe([topic])
    got = consume(first, 4)
    first.commit(message=got[3], asynchronous=False)
    first.close()
    second = reader(bootstrap, f"{topic}-g")
    second.subscribe([topic])
    rest = [message.value() for message in consume(second, 6)]
    second.close()
    assert rest == [b"4", b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_consumers_share_the_partitions_and_the_survivor_takes_over(
    bootstrap: str, topic: str, strategy: str
) -> None:
    ensure_topic(bootstrap, topic, partitions=4)
    config = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300}
    one, two = reader(bootstrap, f"{topic}-g", **config), reader(bootstrap, f"{topic}-g", **config)
    one.subscribe([topic])
    two.subscribe([topic])

    def owned(*consumers: Consumer) -> list[int]:
        for consumer in consumers:
            consumer.poll(0.2)
        return [len(consumer.assignment()) for consumer in consumers]

    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while owned(one, two) != [2, 2] and time.monotonic() < deadline:
        pass
    assert owned(one, two) == [2, 2]
    two.close()
    while owned(one) != [4] and time.monotonic() < deadline:
        pass
    assert owned(one) == [4]
    one.close()


def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    static = {"group.instance.id": "pod-3", "session.timeout.ms": 60000}

    def join() -> Consumer:
        consumer = reader(bootstrap, f"{topic}-g", **static)
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
            consumer.poll(0.1)
        return consumer

    first = join()
    generation = first.memberid()
    first.close()  # a static member does not leave the group
    described = admin.describe_consumer_groups([f"{topic}-g"])[f"{topic}-g"].result(10)
    assert [member.group_instance_id for member in described.members] == ["pod-3"]
    second = join()
    assert len(second.assignment()) == 2
    assert second.memberid() != generation
    second.close()


def test_headers_null_keys_null_values_and_timestamps_come_back_unchanged(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic,
        key=None,
        value=None,
        headers=[("trace", b"abc"), ("empty", b""), ("none", None)],
        timestamp=1_700_000_000_123,
    )
    producer.produce(topic, key=b"", value=b"")
    producer.flush(10)
    consumer = reader(bootstrap, f"{topic}-g")
    consumer.assign([TopicPartition(topic, 0, 0)])
    first, second = consume(consumer, 2)
    consumer.close()
    assert (first.key(), first.value()) == (None, None)
    assert first.headers() == [("trace", b"abc"), ("empty", b""), ("none", None)]
    assert first.timestamp()[1] == 1_700_000_000_123
    assert (second.key(), second.value()) == (b"", b"")


def test_admin_alters_configs_adds_partitions_and_deletes_the_topic(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=1, **{"retention.ms": "60000"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "120000"})
    with pytest.deprecated_call():  # AlterConfigs (33), which older programs send
        admin.alter_configs([resource])[resource].result(10)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([asked])[asked].result(10)["retention.ms"].value == "120000"
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(admin.list_topics(topic, WAIT_SECONDS_MAX).topics[topic].partitions) != 3 and time.monotonic() < deadline:
        pass
    assert len(admin.list_topics(topic, WAIT_SECONDS_MAX).topics[topic].partitions) == 3
    admin.delete_topics([topic])[topic].result(10)
    while topic in admin.list_topics(timeout=WAIT_SECONDS_MAX).topics and time.monotonic() < deadline:
        pass
    assert topic not in admin.list_topics(timeout=WAIT_SECONDS_MAX).topics


def test_producing_a_record_that_is_too_large_is_refused_and_the_next_one_passes(bootstrap: str, topic: str) -> None:
    ensure_topic(bootstrap, topic, partitions=1, **{"max.message.bytes": "1000"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    errors: list[Any] = []
    producer.produce(topic, value=bytes(5000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    producer.produce(topic, value=b"small", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
