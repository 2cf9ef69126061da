"""One stock Python client's typical work, as a program: topics, produce, consume, groups, transactions, and a broker that
restarts meanwhile.

    python -m tests.compat.stock_day CLIENT BOOTSTRAP TOPIC

It writes "restart" to its output when the broker is to be restarted, and works on until it reads a line. The client's own lines
go to stderr; `client_lines.py` reads them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import aiokafka
import aiokafka.admin
import kafka
import kafka.admin
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaError

SECONDS_MAX = 60
COUNT = 10
#: The duration of one poll, which is short so that a client takes part in its group while it produces.
LOOK_S = 0.1


class Restart:
    """The restart of the broker: this program asks for it, and the program that started this one does it."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def begin(self) -> None:
        print("restart", flush=True)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.readline()
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()


def read_until(value: bytes, poll: Callable[[], list[bytes]]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while value not in poll():
        assert time.monotonic() < deadline, f"{value!r} was not read within {SECONDS_MAX} s"


def again(act: Callable[[], object]) -> None:
    """Repeat a call that a broker may reject shortly after its start, while it loads its coordinators and members join
    again.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            act()
            return
        except (KafkaException, KafkaError):
            assert time.monotonic() < deadline
            time.sleep(LOOK_S)


def confluent_kafka(bootstrap: str, topic: str, restart: Restart) -> None:
    common: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(common)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS_MAX)
    producer = Producer(common)
    # librdkafka 2.16.0 loses the coordinator of a transactional producer for good when all brokers were down, also beside Apache Kafka.
    stays = {"metadata.recovery.strategy": "none"}
    transactional = Producer(common | stays | {"transactional.id": f"{topic}-id"})
    transactional.init_transactions(SECONDS_MAX)
    consumers = []
    for protocol in ("classic", "consumer"):
        group = {"group.id": f"{topic}-{protocol}", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer(common | group)
        consumer.subscribe([topic])
        consumers.append(consumer)

    def poll(consumer: Consumer) -> list[bytes]:
        return [message.value() for message in consumer.consume(COUNT, LOOK_S) if message.error() is None]

    def transact() -> None:
        transactional.begin_transaction()
        try:
            transactional.produce(topic, b"in a transaction")
            metadata = consumers[0].consumer_group_metadata()
            transactional.send_offsets_to_transaction([Position(topic, 0, 1)], metadata, SECONDS_MAX)
            transactional.commit_transaction(SECONDS_MAX)
        except KafkaException:
            transactional.abort_transaction(SECONDS_MAX)
            raise

    def work(name: str) -> None:
        for i in range(COUNT):
            producer.produce(topic, f"{name}-{i}".encode())
        producer.produce(topic, name.encode())
        producer.flush(SECONDS_MAX)
        for consumer in consumers:
            read_until(name.encode(), partial(poll, consumer))
            again(partial(consumer.commit, asynchronous=False))
        again(transact)
        transactional.begin_transaction()
        transactional.produce(topic, b"aborted")
        transactional.abort_transaction(SECONDS_MAX)

    work("morning")
    restart.begin()
    while not restart.is_done:
        producer.produce(topic, b"meanwhile")
        producer.poll(0)
        for consumer in consumers:
            poll(consumer)
    work("evening")
    for consumer in consumers:
        consumer.close()
    admin.list_consumer_groups().result(SECONDS_MAX)
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)


def kafka_python(bootstrap: str, topic: str, restart: Restart) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    transactional = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id")
    transactional.init_transactions()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.partitions_for_topic(
        topic
    )  # otherwise it joins without them if the group's coordinator is already there, and warns

    def poll() -> list[bytes]:
        # The time is long, because 3.0.12 loses an assignment for good if the time ends between the answer to SyncGroup and the
        # end of the rebalance.
        return [each.value for batch in consumer.poll(timeout_ms=2_000).values() for each in batch]

    def work(name: str) -> None:
        for i in range(COUNT):
            producer.send(topic, f"{name}-{i}".encode())
        producer.send(topic, name.encode()).get(SECONDS_MAX)
        read_until(name.encode(), poll)
        consumer.commit()
        for end in (transactional.commit_transaction, transactional.abort_transaction):
            transactional.begin_transaction()
            transactional.send(topic, b"in a transaction")
            transactional.flush(SECONDS_MAX)
            end()

    work("morning")
    restart.begin()
    while not restart.is_done:
        producer.send(topic, b"meanwhile")
        consumer.poll(timeout_ms=100)
    work("evening")
    consumer.close()
    producer.close()
    transactional.close()
    again(admin.list_groups)
    again(lambda: admin.delete_topics([topic]))
    admin.close()


def aio_kafka(bootstrap: str, topic: str, restart: Restart) -> None:
    asyncio.run(_aiokafka(bootstrap, topic, restart))


async def _aiokafka(bootstrap: str, topic: str, restart: Restart) -> None:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
    transactional = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-id")
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    for client in (producer, transactional, consumer):
        await client.start()

    async def work(name: str) -> None:
        for i in range(COUNT):
            await producer.send_and_wait(topic, f"{name}-{i}".encode())
        for end in (transactional.commit_transaction, transactional.abort_transaction):
            await transactional.begin_transaction()
            await transactional.send_and_wait(topic, b"in a transaction")
            await end()
        await producer.send_and_wait(topic, name.encode())
        async with asyncio.timeout(SECONDS_MAX):
            while (await consumer.getone()).value != name.encode():
                pass
        await consumer.commit()

    await work("morning")
    restart.begin()
    while not restart.is_done:
        await producer.send(topic, b"meanwhile")
        await asyncio.sleep(LOOK_S)
    await work("evening")
    for client in (consumer, producer, transactional):
        await client.stop()
    await admin.list_consumer_groups()
    await admin.delete_topics([topic])
    await admin.close()


CLIENTS = {"confluent-kafka": confluent_kafka, "kafka-python": kafka_python, "aiokafka": aio_kafka}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], Restart())
