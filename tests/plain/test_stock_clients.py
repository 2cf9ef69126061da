"""Stock clients at a node of the plain install: the steps of `tests/clients`, and the work of a missing extra.

Without the extra `lz4` the node reads and writes lz4 by cramjam, and without `regex` it matches regular expressions itself.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PlainTopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError as PlainKafkaError

from tests.clients.test_aiokafka import test_what_an_async_producer_sends_an_async_group_consumer_reads
from tests.clients.test_confluent_kafka import (
    test_a_second_consumer_of_the_group_continues_after_the_committed_offset,
    test_admin_alters_configs_adds_partitions_and_deletes_the_topic,
    test_headers_null_keys_null_values_and_timestamps_come_back_unchanged,
)
from tests.clients.test_consumer_protocol import (
    member,
    poll_until,
    test_members_share_the_partitions_commit_leave_and_go_on_where_the_group_was,
)
from tests.clients.test_kafka_python import (
    test_admin_creates_lists_and_deletes_topics,
    test_an_idempotent_producer_with_callbacks_feeds_a_consumer_that_commits_by_hand,
)
from tests.clients.test_transactions import (
    futures_are_collected,
    test_a_committed_read_sees_what_was_committed_and_nothing_else,
    test_aiokafka_commits_aborts_and_is_fenced,
    test_kafka_python_consumes_transforms_and_produces,
)
from tests.plain.conftest import PlainNode

__all__ = [
    "futures_are_collected",
    "test_a_committed_read_sees_what_was_committed_and_nothing_else",
    "test_a_second_consumer_of_the_group_continues_after_the_committed_offset",
    "test_admin_alters_configs_adds_partitions_and_deletes_the_topic",
    "test_admin_creates_lists_and_deletes_topics",
    "test_aiokafka_commits_aborts_and_is_fenced",
    "test_an_idempotent_producer_with_callbacks_feeds_a_consumer_that_commits_by_hand",
    "test_headers_null_keys_null_values_and_timestamps_come_back_unchanged",
    "test_kafka_python_consumes_transforms_and_produces",
    "test_members_share_the_partitions_commit_leave_and_go_on_where_the_group_was",
    "test_what_an_async_producer_sends_an_async_group_consumer_reads",
]

WAIT_S_MAX = 30


def create(bootstrap: str, *topics: str, **configs: str) -> None:
    """Create topics with `configs`, which have underscores for the dots of their names."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    for made in admin.create_topics([NewTopic(topic, 1, 1, config=config) for topic in topics]).values():
        made.result(WAIT_S_MAX)


# -- Regular expressions -------------------------------------------------------------------------------------------------


def test_a_group_of_the_consumer_protocol_has_the_topics_that_its_regular_expression_names(
    bootstrap: str, topic: str
) -> None:
    create(bootstrap, f"{topic}-orders-a", f"{topic}-orders-b1", f"{topic}-orders-ab", f"{topic}-payments")
    consumer = member(bootstrap, topic)
    consumer.subscribe([f"^{topic}-orders-(a|b[0-9])$"])
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    assert {each.topic for each in consumer.assignment()} == {f"{topic}-orders-a", f"{topic}-orders-b1"}
    consumer.close()


def test_a_regular_expression_that_is_not_valid_is_the_consumers_error(bootstrap: str, topic: str) -> None:
    """librdkafka sends this one, which is valid in POSIX, too; it rejects others itself."""
    consumer = member(bootstrap, topic, log_level=0)
    consumer.subscribe(["^orders-a**"])
    assert "The regular expression is not valid" in first(consumer).error().str()
    consumer.close()


def first(consumer: Consumer) -> Message:
    message = consumer.poll(WAIT_S_MAX)
    assert message is not None
    return message


def test_transactions_are_listed_by_a_regular_expression(bootstrap: str, topic: str) -> None:
    for name in ("orders", "payments"):
        producer = KafkaProducer(bootstrap_servers=[bootstrap], transactional_id=f"{topic}-{name}")
        producer.init_transactions()
        producer.close()
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])
    listed = admin.list_transactions(transactional_id_pattern=f"{topic}-ord.*")
    assert f"{topic}-orders" in str(listed) and "payments" not in str(listed)
    with pytest.raises(PlainKafkaError, match="error_code=128"):
        admin.list_transactions(transactional_id_pattern="orders-(a")
    admin.close()


def test_a_subscription_to_clients_metrics_has_a_regular_expression(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])

    def subscribe(match: str) -> str:
        configs = {"metrics": "org.apache.kafka.", "match": match}
        return str(admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, topic, configs)]))

    assert "OK" in subscribe("client_id=orders-[0-9]+")
    assert "Illegal client matching pattern" in subscribe("client_id=orders-(a")
    admin.close()


# -- Codecs --------------------------------------------------------------------------------------------------------------

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Topics by their purpose, with their configuration.
STORED = {
    "as it comes": {},
    "uncompressed": {"compression_type": "uncompressed"},
    "snappy": {"compression_type": "snappy"},
    **{
        f"{codec} level {level}": {"compression_type": codec, f"compression_{codec}_level": str(level)}
        for codec, levels in {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-5, 19)}.items()
        for level in levels
    },
}
REPEATED_BYTES = 300_000
#: One byte that repeats itself compresses to 1 of 255 by lz4, and to less by zstd; blocks of lz4 have 64 KiB.
BODIES = (
    b"",
    b"a line of a text, as most records are " * 20,
    bytes(64 * 1024),
    bytes(REPEATED_BYTES),
    random.Random(1).randbytes(20_000),
)


def values(client: str, codec: str) -> list[bytes]:
    return [f"{client} {codec} {number} ".encode() + body for number, body in enumerate(BODIES)]


ALL_VALUES = sorted(value for client in ("c", "k", "a") for codec in CODECS for value in values(client, codec))


@pytest.fixture(scope="module")
def stored(bootstrap: str) -> dict[str, str]:
    """Topic -> its purpose, once each client has written to it with each codec."""
    topics = {f"codecs-{number}": name for number, name in enumerate(STORED)}
    for topic, name in topics.items():
        create(bootstrap, topic, **STORED[name])

    def write(codec: str) -> None:
        write_with_confluent(bootstrap, list(topics), codec)
        write_with_kafka_python(bootstrap, list(topics), codec)
        asyncio.run(write_with_aiokafka(bootstrap, list(topics), codec))

    # kafka-python's waits a tenth of a second for each topic that it does not know.
    with ThreadPoolExecutor(len(CODECS)) as pool:
        list(pool.map(write, CODECS))
    return topics


def write_with_confluent(bootstrap: str, topics: list[str], codec: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for topic in topics:
        for value in values("c", codec):
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S_MAX) == 0
    assert set(failed) == {None}


def write_with_kafka_python(bootstrap: str, topics: list[str], codec: str) -> None:
    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=[bootstrap], compression_type=compression, linger_ms=5)
    sent = [producer.send(topic, value) for topic in topics for value in values("k", codec)]
    for future in sent:
        future.get(WAIT_S_MAX)
    producer.close()


async def write_with_aiokafka(bootstrap: str, topics: list[str], codec: str) -> None:
    compression = None if codec == "none" else codec
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=5)
    await producer.start()
    sent = [await producer.send(topic, value) for topic in topics for value in values("a", codec)]
    await asyncio.gather(*sent)
    await producer.stop()


def read_with_confluent(bootstrap: str, topics: list[str], count: int) -> Iterator[tuple[str, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    for _ in range(count):
        message = first(consumer)
        assert message.error() is None, message.error()
        yield message.topic(), message.value()
    consumer.close()


def read_with_kafka_python(bootstrap: str, topics: list[str], count: int) -> Iterator[tuple[str, bytes]]:
    consumer = KafkaConsumer(bootstrap_servers=[bootstrap], consumer_timeout_ms=WAIT_S_MAX * 1000)
    partitions = [PlainTopicPartition(topic, 0) for topic in topics]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    for _ in range(count):
        message = next(consumer)
        yield message.topic, message.value
    consumer.close()


def read_with_aiokafka(bootstrap: str, topics: list[str], count: int) -> Iterator[tuple[str, bytes]]:
    async def read() -> list[tuple[str, bytes]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioTopicPartition(topic, 0) for topic in topics])
        got = [await asyncio.wait_for(consumer.getone(), WAIT_S_MAX) for _ in range(count)]
        await consumer.stop()
        return [(message.topic, message.value) for message in got]

    yield from asyncio.run(read())


@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python, read_with_aiokafka])
def test_each_client_reads_what_each_has_written_with_each_codec_to_topics_of_each(
    bootstrap: str, stored: dict[str, str], read: Callable[[str, list[str], int], Iterator[tuple[str, bytes]]]
) -> None:
    got: dict[str, list[bytes]] = {topic: [] for topic in stored}
    for topic, value in read(bootstrap, list(stored), len(stored) * len(ALL_VALUES)):
        got[topic].append(value)
    wrong = [name for topic, name in stored.items() if sorted(got[topic]) != ALL_VALUES]
    assert not wrong


def test_the_batches_on_the_disk_have_the_codec_of_their_topic(node: PlainNode, stored: dict[str, str]) -> None:
    codecs = {name: codecs_of(node.directory, topic) for topic, name in stored.items()}
    own = {
        name: {CODECS[0 if word == "uncompressed" else CODECS.index(word)]}
        for name in STORED
        if (word := name.split()[0]) in (*CODECS, "uncompressed")
    }
    assert codecs == {"as it comes": set(CODECS), **own}


def codecs_of(directory: Path, topic: str) -> set[str]:
    """Return the codecs of the batches of partition 0: offset, length, leader epoch, magic and CRC come before the attributes."""
    (path,) = directory.rglob(f"{topic}-0/*.log")
    data, at, found = path.read_bytes(), 0, set()
    while length := int.from_bytes(data[at + 8 : at + 12], "big"):
        found.add(CODECS[data[at + 22] & 7])
        at += 12 + length
    return found


# -- Share groups --------------------------------------------------------------------------------------------------------


def test_a_share_group_delivers_each_record_once(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])
    admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, topic, {"share.auto.offset.reset": "earliest"})])
    admin.close()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, str(number).encode())
    assert producer.flush(WAIT_S_MAX) == 0
    got: list[bytes] = []
    with ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_S_MAX
        while len(got) < 20 and time.monotonic() < deadline:
            got += [message.value() for message in consumer.poll(1.0)]
    assert got == [str(number).encode() for number in range(20)]
