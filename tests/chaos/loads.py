"""More clients that write while nodes fail: transactions, and keys of a compacted topic.

Each of them knows what was acknowledged to it, and judges what a reader finds at the end: invariants 30, 31, 33 and 43.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from tests.chaos.history import (
    FLUSH_SECONDS_MAX,
    IMPATIENT,
    PARTITIONS,
    READ_SECONDS_MAX,
    create_topic,
)
from tests.effort import RECORDS_PER_SECOND

TRANSACTIONS_TOPIC, KEYS_TOPIC = "transactions", "keys"
CALL_SECONDS_MAX = 30
STALLED_SECONDS_MAX = 120
RECORDS_PER_TRANSACTION = 8
ABORTED_SHARE = 0.1
KEYS = 200
TOMBSTONE_SHARE = 0.1
_VALUE = struct.Struct(">qi")


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # the response to EndTxn was lost, and another incarnation went on


class TransactionalLoad:
    """A transactional producer in a thread. Each transaction writes to all partitions, and a tenth of them is aborted."""

    topic = TRANSACTIONS_TOPIC

    def __init__(self, bootstrap: str, seed: int, settings: Mapping[str, Any] = IMPATIENT) -> None:
        create_topic(bootstrap, 3, self.topic, min_insync_replicas="2")
        self.outcomes: dict[int, Outcome] = {}
        #: The number of transactions whose commit was acknowledged. Other threads read it, because they may not iterate over
        #: the outcomes.
        self.committed = 0
        self.incarnations = 0
        self.problems: list[str] = []
        self._bootstrap, self._rng, self._settings = bootstrap, random.Random(seed), settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_commits(self, more: int) -> None:
        """Wait until this number of further transactions is committed."""
        target, deadline = self.committed + more, time.monotonic() + STALLED_SECONDS_MAX
        while self.committed < target:
            assert time.monotonic() < deadline, f"no transaction was committed in {STALLED_SECONDS_MAX} s"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(STALLED_SECONDS_MAX)
        if self._thread.is_alive():
            self.problems.append(f"a transaction did not end within {STALLED_SECONDS_MAX} s")

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        while not self._stop.is_set():
            self.incarnations += 1
            try:
                self._live()
            except KafkaException:
                continue  # the next incarnation ends the transaction that this one left open

    def _live(self) -> None:
        from confluent_kafka import Producer

        settings = {"transactional.id": "chaos", "transaction.timeout.ms": 60_000}
        client = {**self._settings, "message.timeout.ms": 60_000, **settings, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._bootstrap, **client})
        producer.init_transactions(CALL_SECONDS_MAX)
        while not self._stop.is_set():
            number = len(self.outcomes)
            self.outcomes[number] = Outcome.UNKNOWN
            producer.begin_transaction()
            for index in range(RECORDS_PER_TRANSACTION):
                producer.produce(self.topic, _VALUE.pack(number, index), partition=index % PARTITIONS)
            producer.flush(CALL_SECONDS_MAX)
            if self._rng.random() < ABORTED_SHARE:
                producer.abort_transaction(CALL_SECONDS_MAX)
                self.outcomes[number] = Outcome.ABORTED
            else:
                producer.commit_transaction(CALL_SECONDS_MAX)
                self.outcomes[number] = Outcome.COMMITTED
                self.committed += 1

    def judge(self) -> list[str]:
        """Return the transactions that are not seen complete, once and in their place, or that are seen although they were
        aborted.
        """
        found: dict[int, Counter[int]] = defaultdict(Counter)
        for message in read(self._bootstrap, self.topic, "read_committed"):
            number, index = _VALUE.unpack(message.value())
            found[number][index] += 1
        whole = Counter(range(RECORDS_PER_TRANSACTION))
        allowed = {
            Outcome.COMMITTED: (whole,),
            Outcome.ABORTED: (Counter[int](),),
            Outcome.UNKNOWN: (whole, Counter[int]()),
        }
        wrong = [n for n, outcome in self.outcomes.items() if found.get(n, Counter()) not in allowed[outcome]]
        first = [(n, self.outcomes[n].value, dict(found.get(n, Counter()))) for n in wrong[:3]]
        return self.problems + (
            [f"{len(wrong)} transactions are torn, lost or doubled, first {first}"] if wrong else []
        )


class Write(NamedTuple):
    number: int
    is_tombstone: bool


class KeyedLoad:
    """An idempotent producer that writes the same keys again and again to a compacted topic, tombstones among them."""

    topic = KEYS_TOPIC

    def __init__(self, bootstrap: str, seed: int, settings: Mapping[str, Any] = IMPATIENT) -> None:
        from confluent_kafka import Producer

        policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "1000"}
        create_topic(bootstrap, 3, self.topic, min_insync_replicas="2", **policy)
        self._bootstrap, self._rng = bootstrap, random.Random(seed)
        self.acknowledged: dict[int, Write] = {}  # the newest write of each key
        self.count, self.failed = 0, list[str]()
        self.records_left = 0
        always = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**always, **settings})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.failed.append(f"{left} keyed records neither acknowledged nor refused after {FLUSH_SECONDS_MAX} s")

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        while not self._stop.is_set():
            key = self._rng.randrange(KEYS)
            write = Write(number, self._rng.random() < TOMBSTONE_SHARE)
            value = None if write.is_tombstone else _VALUE.pack(number, 0)
            try:
                self._producer.produce(
                    self.topic,
                    value,
                    str(key),
                    partition=key % PARTITIONS,
                    headers={"number": str(number)},
                    on_delivery=lambda error, message, key=key, write=write: self._delivered(key, write, error),
                )
                number += 1
            except BufferError:
                pass
            if RECORDS_PER_SECOND is None:
                self._producer.poll(0.001)
            else:
                self._producer.poll(max(0.0, began + number / RECORDS_PER_SECOND - time.monotonic()))

    def _delivered(self, key: int, write: Write, error: Any) -> None:
        if error is not None:
            self.failed.append(f"key {key}, number {write.number}: {error}")
            return
        self.count += 1
        if write.number > self.acknowledged.get(key, Write(-1, False)).number:
            self.acknowledged[key] = write

    def judge(self) -> list[str]:
        """Return the keys whose newest value in the log is older than the acknowledged one, or whose values are out of
        order.
        """
        newest: dict[int, Write] = {}
        problems = [f"failed: {text}" for text in self.failed[:5]]
        for message in read(self._bootstrap, self.topic, "read_committed"):
            self.records_left += 1
            key, number = int(message.key()), int(dict(message.headers())["number"])
            if number <= newest.get(key, Write(-1, False)).number:
                problems.append(f"key {key}: number {number} stands behind {newest[key].number}")
            newest[key] = Write(number, message.value() is None)
        for key, promised in self.acknowledged.items():
            found = newest.get(key)
            # A tombstone whose retention is over may be gone, with all earlier records of the key.
            if found is None and promised.is_tombstone:
                continue
            if found is None or found.number < promised.number:
                problems.append(f"key {key}: acknowledged {promised}, the newest in the log is {found}")
        return problems[:20]


def read(bootstrap: str, topic: str, isolation: str, *, partitions: int = PARTITIONS) -> Iterator[Any]:
    """Yield every record of the topic that a consumer with this isolation level gets, partition by partition in order."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "judge", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": isolation, **settings})
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1] for p in range(partitions)}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        open_partitions, deadline = set(range(partitions)), time.monotonic() + READ_SECONDS_MAX
        while open_partitions:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end: {open_partitions} of {ends}"
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= ends[message.partition()]:
                    open_partitions.discard(message.partition())
    finally:
        consumer.close()
