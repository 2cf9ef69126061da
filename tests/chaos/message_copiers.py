"""Applications that consume, produce and commit offsets in transactions: each copied record is there exactly once.

The Java one (Apache Kafka's own, from its system tests) speaks transaction version 2 (KIP-890), librdkafka the one before.
After a fatal error both start over with the same transactional id.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from typing import Any

from tools.apache_kafka import java_command

SOURCE, TARGET = "numbers", "copies"
PARTITIONS = 3
RECORDS_PER_TRANSACTION = 50
TRANSACTION_TIMEOUT_MS = 60_000
# The limit of time without progress, which is longer than the wait for an open transaction of a former incarnation.
STALLED_SECONDS_MAX = 90
CALL_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30
COPIER_CLASS = "org.apache.kafka.tools.TransactionalMessageCopier"

LIBRDKAFKA: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "log_level": 0,
    # librdkafka (2.10 to 2.16 at least) takes a broker out that is not reachable, and forgets that it still has it as the
    # group's coordinator: send_offsets_to_transaction then waits for ever, whatever its timeout, and sends nothing
    # (its issues 5511 and 5456). If the only node is killed, this setting prevents that. If one of several nodes is killed,
    # only sparing the group's coordinator does.
    "metadata.recovery.strategy": "none",
}


class TransactionalMessageCopier:
    """A copier that runs in a thread until everything is copied, or nothing was for STALLED_SECONDS_MAX."""

    def __init__(self, bootstrap: str, transactional_id: str, group_id: str, count: int, seed: int = 0) -> None:
        self.committed = self.aborted = self.recoveries = 0
        self.doing = ""
        self.done = threading.Event()
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._count = count
        self._rng = random.Random(seed)
        self._moved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for_commits(self, more: int) -> bool:
        """Wait for further commits. Return False if nothing is left to do, or nothing has happened for too long: `problems` has
        the reason.
        """
        enough = self.committed + more
        while self.committed < enough and not self.is_stalled:
            if self.done.wait(0.01):
                return False
        return self.committed >= enough

    def problems(self) -> list[str]:
        """Wait for the end, and return what is wrong."""
        while not self.done.wait(1):
            if self.is_stalled:
                return [f"nothing was committed for {STALLED_SECONDS_MAX} s; the application is at {self.doing}"]
        return []

    @property
    def is_stalled(self) -> bool:
        return time.monotonic() - self._moved_at > STALLED_SECONDS_MAX

    def _has_committed(self) -> None:
        self.committed += 1
        self._moved_at = time.monotonic()

    def _run(self) -> None:
        while not self.done.is_set() and not self.is_stalled:
            if self._live():
                self.done.set()
            else:
                self.recoveries += 1

    def _live(self) -> bool:
        """Run one incarnation; return True when everything is copied."""
        raise NotImplementedError


class LibrdkafkaMessageCopier(TransactionalMessageCopier):
    def _live(self) -> bool:
        from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

        client = {"bootstrap.servers": self._bootstrap, **LIBRDKAFKA}
        transactional = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        consumer = Consumer(
            {
                **client,
                "group.id": self._group_id,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            producer = Producer(client | transactional)
            self._call(producer.init_transactions, CALL_SECONDS_MAX)
            wanted = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
            committed = self._call(consumer.committed, wanted, CALL_SECONDS_MAX)
            positions = {p.partition: max(p.offset, 0) for p in committed}
            consumer.assign([TopicPartition(SOURCE, index, offset) for index, offset in positions.items()])
            while sum(positions.values()) < self._count:
                if self.is_stalled:
                    return False
                messages = [m for m in consumer.consume(RECORDS_PER_TRANSACTION, 0.2) if m.error() is None]
                if messages:
                    self._transact(producer, consumer, messages, positions)
            return True
        except KafkaException:
            return False
        finally:
            consumer.close()

    def _transact(self, producer: Any, consumer: Any, messages: list[Any], positions: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        producer.begin_transaction()
        after = dict(positions)
        for message in messages:
            producer.produce(TARGET, message.value(), partition=int(message.value()) % PARTITIONS)
            after[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(SOURCE, index, offset) for index, offset in after.items()]
        group = consumer.consumer_group_metadata()
        self._call(producer.send_offsets_to_transaction, offsets, group, CALL_SECONDS_MAX)
        if self._rng.random() < 0.1:
            self._call(producer.abort_transaction, CALL_SECONDS_MAX)
            self.aborted += 1
            for index, offset in positions.items():
                consumer.seek(TopicPartition(SOURCE, index, offset))
            return
        self._call(producer.commit_transaction, CALL_SECONDS_MAX)
        self._has_committed()
        positions.update(after)

    def _call(self, function: Any, *args: Any) -> Any:
        self.doing = function.__name__
        return function(*args)


class JavaMessageCopier(TransactionalMessageCopier):
    """Copies partition by partition, and aborts a third of its transactions."""

    def _live(self) -> bool:
        arguments = {
            "--broker-list": self._bootstrap,
            "--input-topic": SOURCE,
            "--input-partition": "0",
            "--output-topic": TARGET,
            "--consumer-group": self._group_id,
            "--transactional-id": self._transactional_id,
            "--transaction-size": str(RECORDS_PER_TRANSACTION),
            "--transaction-timeout": str(TRANSACTION_TIMEOUT_MS),
        }
        words = [word for pair in arguments.items() for word in pair]
        command = java_command(COPIER_CLASS, *words, "--group-mode", "--use-group-metadata", "--enable-random-aborts")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        watchdog = threading.Thread(target=self._end_when_stalled, args=[process], daemon=True)
        watchdog.start()
        copied = 0
        assert process.stdout is not None
        try:
            for line in process.stdout:
                self.doing = line
                status = json.loads(line) if line.startswith("{") else {}
                if status.get("totalProcessed", 0) > copied:
                    copied = status["totalProcessed"]
                    self._has_committed()
            return process.wait(STOP_SECONDS_MAX) == 0
        finally:
            process.kill()
            watchdog.join()

    def _end_when_stalled(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            if self.is_stalled:
                process.kill()
            time.sleep(0.1)
