"""Consume, transform, produce in transactions, while the node is killed again and again: every record's result exactly once."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.node_process import NodeProcess

SOURCE, TARGET, GROUP, TRANSACTIONAL_ID = "numbers", "squares", "squarers", "squarer"
PARTITIONS = 3
RECORDS_PER_TRANSACTION = 50
SECONDS_MAX = 180
CALL_SECONDS_MAX = 30
NUMBER = struct.Struct(">q")


@dataclass
class Verdict:
    """What a run showed; `problems` is empty when every promise held."""

    kills: int = 0
    committed: int = 0
    aborted: int = 0
    recoveries: int = 0
    problems: list[str] = field(default_factory=list)


def client_settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "log_level": 0,
    }


class Squarer:
    """One application: reads numbers, writes their squares, and the offsets it has come to, all in one transaction."""

    def __init__(self, bootstrap: str, count: int, verdict: Verdict, seed: int) -> None:
        self.verdict = verdict
        self._settings = client_settings(bootstrap)
        self._count = count
        self._rng = random.Random(seed)
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(SECONDS_MAX)
        if self._thread.is_alive():
            self.verdict.problems.append(f"the application did not finish in {SECONDS_MAX} s")

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + SECONDS_MAX
        while not self.done.is_set() and time.monotonic() < deadline:
            try:
                self._live(deadline)
            except KafkaException:
                # Whatever it was: a new incarnation of the same transactional id fences this one and goes on.
                self.verdict.recoveries += 1

    def _live(self, deadline: float) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        producer = Producer({**self._settings, "transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": 60_000})
        producer.init_transactions(CALL_SECONDS_MAX)
        consumer = Consumer(
            {
                **self._settings,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            wanted = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
            committed = consumer.committed(wanted, CALL_SECONDS_MAX)
            consumer.assign([TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in committed])
            positions = {p.partition: max(p.offset, 0) for p in committed}
            while time.monotonic() < deadline:
                if sum(positions.values()) >= self._count:
                    self.done.set()
                    return
                messages = [m for m in consumer.consume(RECORDS_PER_TRANSACTION, 0.2) if m.error() is None]
                if messages:
                    self._transact(producer, consumer, messages, positions)
        finally:
            consumer.close()

    def _transact(self, producer: Any, consumer: Any, messages: list[Any], positions: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        producer.begin_transaction()
        after = dict(positions)
        for message in messages:
            (number,) = NUMBER.unpack(message.value())
            producer.produce(TARGET, NUMBER.pack(number * number), partition=number % PARTITIONS)
            after[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(SOURCE, index, offset) for index, offset in after.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_SECONDS_MAX)
        if self._rng.random() < 0.1:
            producer.abort_transaction(CALL_SECONDS_MAX)
            self.verdict.aborted += 1
            for index, offset in positions.items():
                consumer.seek(TopicPartition(SOURCE, index, offset))
            return
        producer.commit_transaction(CALL_SECONDS_MAX)
        self.verdict.committed += 1
        positions.update(after)


def run(*, kills: int, count: int, seed: int) -> Verdict:
    verdict = Verdict()
    rng = random.Random(seed)
    node = NodeProcess(num_partitions=str(PARTITIONS))
    try:
        node.start()
        _fill(node.bootstrap, count)
        squarer = Squarer(node.bootstrap, count, verdict, seed)
        while verdict.kills < kills and not squarer.done.is_set():
            time.sleep(rng.uniform(0.1, 0.6))
            node.kill()
            node.start()
            verdict.kills += 1
        squarer.join()
        _check(node.bootstrap, count, verdict)
        return verdict
    finally:
        node.remove()


def _fill(bootstrap: str, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(SOURCE, NUMBER.pack(number), partition=number % PARTITIONS)
    assert producer.flush(CALL_SECONDS_MAX) == 0


def _check(bootstrap: str, count: int, verdict: Verdict) -> None:
    squares = Counter(NUMBER.unpack(value)[0] for value in read_committed(bootstrap, TARGET))
    expected = Counter(number * number for number in range(count))
    if missing := expected - squares:
        verdict.problems.append(f"{missing.total()} squares are missing, like {sorted(missing)[:5]}")
    if extra := squares - expected:
        verdict.problems.append(f"{extra.total()} squares are there too often, like {sorted(extra)[:5]}")


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """Everything up to the last stable offsets."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **client_settings(bootstrap),
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    open_partitions = set(range(PARTITIONS))
    deadline = time.monotonic() + SECONDS_MAX
    while open_partitions:
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            open_partitions.discard(message.partition())
    consumer.close()
    return values
