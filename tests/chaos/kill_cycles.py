"""kill -9 and restart under idempotent load, again and again: no acknowledged record may be lost, doubled or moved."""

from __future__ import annotations

import random
import struct
import threading
import time
from dataclasses import dataclass, field

from tests.chaos.node_process import NodeProcess

TOPIC = "kill-cycles"
PARTITIONS = 4
DELIVERY_SECONDS_MAX = 120
QUEUED_MAX = 5000
FLUSH_SECONDS_MAX = 60
READ_SECONDS_MAX = 120


@dataclass
class Verdict:
    """What a run of cycles showed; `problems` is empty when every promise held."""

    cycles: int = 0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    restart_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Load:
    """One idempotent librdkafka producer in a thread; remembers what was acknowledged, and where."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
                "queue.buffering.max.messages": QUEUED_MAX,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}  # value -> (partition, offset)
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        left = self.producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.failed.append(f"{left} records neither acknowledged nor refused after {FLUSH_SECONDS_MAX} s")

    def wait_for_acknowledgements(self, more: int) -> None:
        """Until so many records beyond those of now are acknowledged: the client has found the node again."""
        target = len(self.acknowledged) + more
        deadline = time.monotonic() + DELIVERY_SECONDS_MAX
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, "the client did not get through to the node"
            time.sleep(0.001)

    def _run(self) -> None:
        while not self._stop.is_set():
            value = self.sent
            try:
                self.producer.produce(
                    TOPIC, struct.pack(">q", value), partition=value % PARTITIONS, on_delivery=self._delivered
                )
                self.sent += 1
            except BufferError:
                self.producer.poll(0.05)
            if value % 20 == 0:
                self.producer.poll(0.002)  # some thousand records a second: enough to be under way at every kill

    def _delivered(self, error: object, message: object) -> None:
        value = struct.unpack(">q", message.value())[0]  # type: ignore[attr-defined]
        if error is not None:
            self.failed.append(f"record {value}: {error}")
        else:
            self.acknowledged[value] = (message.partition(), message.offset())  # type: ignore[attr-defined]


def create_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept by name: its end would end the request
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


def read_everything(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Every record of the topic: value -> the places where it stands."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    places: dict[int, list[tuple[int, int]]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(5000, 1.0):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                value = struct.unpack(">q", message.value())[0]
                places.setdefault(value, []).append((message.partition(), message.offset()))
    consumer.close()
    assert len(ended) == PARTITIONS, "the log could not be read to its end"
    return places


def judge(load: Load, places: dict[int, list[tuple[int, int]]]) -> list[str]:
    """Invariants 1, 2, 26 and 27 on one producer's history."""
    problems = [f"failed: {text}" for text in load.failed[:5]]
    lost = [value for value in load.acknowledged if value not in places]
    doubled = [value for value, where in places.items() if len(where) > 1]
    moved = [value for value, where in load.acknowledged.items() if value in places and where not in places[value]]
    for name, values in (("lost", lost), ("doubled", doubled), ("moved", moved)):
        if values:
            problems.append(f"{len(values)} {name}, first {sorted(values)[:5]}")
    for partition in range(PARTITIONS):
        in_log = [
            value
            for _, value in sorted((where[0][1], value) for value, where in places.items() if where[0][0] == partition)
        ]
        if in_log != sorted(in_log):
            problems.append(f"partition {partition} is out of order")
    return problems


def run(cycles: int, seed: int, **properties: str) -> Verdict:
    """One fresh node killed `cycles` times under load, then read and judged."""
    rng = random.Random(seed)
    verdict = Verdict(cycles)
    node = NodeProcess(**properties)
    try:
        node.start()
        create_topic(node.bootstrap)
        load = Load(node.bootstrap)
        for _ in range(cycles):
            load.wait_for_acknowledgements(rng.randint(1, 400))  # so that a kill can come at any moment of a busy node
            node.kill()
            verdict.restart_seconds.append(node.start())
        load.stop()
        verdict.sent, verdict.acknowledged = load.sent, len(load.acknowledged)
        places = read_everything(node.bootstrap)
        verdict.read = len(places)
        verdict.problems = judge(load, places)
    finally:
        node.remove()
    return verdict
