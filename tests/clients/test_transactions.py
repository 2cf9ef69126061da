"""Transactions as each Python client offers them: nothing aborted is read, offsets go with the records, zombies are fenced."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AsyncTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PlainTopicPartition
from kafka.structs import OffsetAndMetadata

WAIT_SECONDS_MAX = 30


@pytest.fixture
def futures_are_collected() -> Iterator[None]:
    """aiokafka leaves the exception of a fenced producer in futures that nothing reads, and asyncio logs each when it is collected.

    The traceback of that log line calls ast.parse. If the collection comes while another module is being parsed, CPython
    3.11 raises SystemError there (AST constructor recursion depth mismatch): a later test failed by it.
    """
    yield
    gc.collect()


def create(bootstrap: str, topic: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(10)


def producer_of(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **settings}
    )
    producer.init_transactions(WAIT_SECONDS_MAX)
    return producer


def read_to_end(bootstrap: str, topic: str, isolation: str = "read_committed", partitions: int = 2) -> list[bytes]:
    """Return the records of every partition from its start to its end, at this isolation level."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ended = [], set()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the end of the topic was not reached"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return values


def test_a_committed_read_sees_what_was_committed_and_nothing_else(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap, topic)
    for number in range(6):
        producer.begin_transaction()
        for index in range(2):
            producer.produce(topic, f"{number}".encode(), partition=index)
        producer.flush()
        if number % 2:
            producer.abort_transaction(WAIT_SECONDS_MAX)
        else:
            producer.commit_transaction(WAIT_SECONDS_MAX)
    assert sorted(read_to_end(bootstrap, topic)) == [b"0", b"0", b"2", b"2", b"4", b"4"]
    assert len(read_to_end(bootstrap, topic, "read_uncommitted")) == 12


def test_records_of_an_open_transaction_are_not_there_yet(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    producer = producer_of(bootstrap, topic)
    producer.begin_transaction()
    producer.produce(topic, b"first", partition=0)
    producer.flush()
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"plain", partition=0)
    plain.flush()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)

    def end(isolation: IsolationLevel) -> int:
        return int(
            admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)[partition].result().offset
        )

    assert read_to_end(bootstrap, topic, partitions=1) == []
    assert (end(IsolationLevel.READ_COMMITTED), end(IsolationLevel.READ_UNCOMMITTED)) == (0, 2)
    producer.commit_transaction(WAIT_SECONDS_MAX)
    assert read_to_end(bootstrap, topic, partitions=1) == [b"first", b"plain"]
    assert (end(IsolationLevel.READ_COMMITTED), end(IsolationLevel.READ_UNCOMMITTED)) == (3, 3)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    producer = producer_of(bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def committed() -> int:
        return int(consumer.committed([TopicPartition(topic, 0)], WAIT_SECONDS_MAX)[0].offset)

    for offset, commit, seen in ((5, True, 5), (7, False, 5), (9, True, 9)):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        offsets = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_SECONDS_MAX)
        if commit:
            producer.commit_transaction(WAIT_SECONDS_MAX)
        else:
            producer.abort_transaction(WAIT_SECONDS_MAX)
        assert committed() == seen
    consumer.close()


def test_a_second_producer_of_the_same_id_fences_the_first(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    zombie = producer_of(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush()
    heir = producer_of(bootstrap, topic)
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(WAIT_SECONDS_MAX)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    heir.commit_transaction(WAIT_SECONDS_MAX)
    assert read_to_end(bootstrap, topic, partitions=1) == [b"heir"]


def test_kafka_python_consumes_transforms_and_produces(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    target, group = f"{topic}-out", f"{topic}-g"
    create(bootstrap, target, 1)
    source = KafkaProducer(bootstrap_servers=[bootstrap])
    for number in range(20):
        source.send(topic, str(number).encode())
    source.flush(10)
    source.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=[bootstrap],
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=20_000,
    )
    producer = KafkaProducer(bootstrap_servers=[bootstrap], transactional_id=topic)
    producer.init_transactions()
    for attempt in ("abort", "commit"):
        producer.begin_transaction()
        for _ in range(20):
            message = next(consumer)
            producer.send(target, message.value + b"!")
        producer.send_offsets_to_transaction(
            {PlainTopicPartition(topic, 0): OffsetAndMetadata(20, "", -1)}, consumer.group_metadata()
        )
        if attempt == "abort":
            producer.abort_transaction()
            consumer.seek(PlainTopicPartition(topic, 0), 0)
        else:
            producer.commit_transaction()
    producer.close()
    assert consumer.committed(PlainTopicPartition(topic, 0)) == 20
    consumer.close()
    assert read_to_end(bootstrap, target, partitions=1) == [f"{number}!".encode() for number in range(20)]


@pytest.mark.usefixtures("futures_are_collected")
async def test_aiokafka_commits_aborts_and_is_fenced(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(topic, b"committed", partition=0)
        await producer.send_offsets_to_transaction({AsyncTopicPartition(topic, 0): 3}, f"{topic}-g")
    with pytest.raises(ZeroDivisionError):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"aborted", partition=0)
            raise ZeroDivisionError
    heir = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await heir.start()
    with pytest.raises(ProducerFenced):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"fenced", partition=0)
    async with heir.transaction():
        await heir.send_and_wait(topic, b"heir", partition=0)
    await heir.stop()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-g",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    partition = AsyncTopicPartition(topic, 0)
    consumer.assign([partition])
    assert await consumer.committed(partition) == 3
    consumer.seek(partition, 0)
    got = [(await asyncio.wait_for(consumer.getone(), WAIT_SECONDS_MAX)).value for _ in range(2)]
    await consumer.stop()
    assert got == [b"committed", b"heir"]
