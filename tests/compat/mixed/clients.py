"""The records that confluent-kafka's clients write and read at brokers of either kind; no acknowledged one may be missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import zip_longest

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.compat.mixed.nodes import WAIT_SECONDS_MAX, NotSo

SILENT = {"log_level": 0, "topic.metadata.refresh.interval.ms": 2_000}


def produce(bootstrap: str, topic: str, values: Sequence[str], *, keys: Sequence[str] = (), **properties: str) -> None:
    """Produce records by an idempotent producer with acks=all. Each of them must be acknowledged."""
    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "message.timeout.ms": WAIT_SECONDS_MAX * 1_000,
    }
    produce_by(Producer({**settings, **SILENT, **properties}), topic, values, keys)


def produce_by(producer: Producer, topic: str, values: Sequence[str], keys: Sequence[str] = ()) -> None:
    """Produce records by a producer that already exists."""
    failed = []
    for value, key in zip_longest(values, keys):
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda error, message: failed.append(error) if error else None
        )
        producer.poll(0)
    left = producer.flush(WAIT_SECONDS_MAX + 10)
    if failed or left:
        raise NotSo(f"{topic}: {len(failed)} of {len(values)} failed by {failed[:1]}, {left} left")


def transact(bootstrap: str, topic: str, values: Sequence[str], transactional_id: str) -> None:
    """Commit one transaction, and abort another one."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **SILENT})
    producer.init_transactions(WAIT_SECONDS_MAX)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.commit_transaction(WAIT_SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, f"aborted by {transactional_id}", partition=0)
    producer.flush(WAIT_SECONDS_MAX)
    producer.abort_transaction(WAIT_SECONDS_MAX)


def check(bootstrap: str, topic: str, expected: Sequence[str]) -> None:
    """Check that the committed records of partition 0 are exactly these, in this order."""
    consumer = _reader(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _same(topic, _values(consumer, len(expected)), expected)
    finally:
        consumer.close()


def read(bootstrap: str, topic: str) -> list[str]:
    """Return all committed records of partition 0, up to its end."""
    consumer = _reader(bootstrap)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS_MAX)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            message: Message | None = consumer.poll(0.5)
            if message is not None and not message.error():
                found.append(message.value().decode())
            position = consumer.position([TopicPartition(topic, 0)])[0].offset
            if position >= end:
                break
        return found
    finally:
        consumer.close()


def _reader(bootstrap: str) -> Consumer:
    settings = {"group.id": "-", "enable.auto.commit": False, "isolation.level": "read_committed"}
    return Consumer({"bootstrap.servers": bootstrap, **settings, **SILENT})


def check_by_group(bootstrap: str, topic: str, group: str, expected: Sequence[str], **properties: str) -> None:
    """Check that a member of the group goes on from its committed offset and reads these values; then commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **SILENT,
            **properties,
        }
    )
    try:
        consumer.subscribe([topic])
        _same(f"{topic} by {group}", _values(consumer, len(expected)), expected)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _values(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        message: Message | None = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append(message.value().decode())
    return found


def _same(where: str, found: list[str], expected: Sequence[str]) -> None:
    if found != list(expected):
        first = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), len(found))
        raise NotSo(
            f"{where}: {len(found)} of {len(expected)} read, different from {first} on: {found[first : first + 2]}"
        )
