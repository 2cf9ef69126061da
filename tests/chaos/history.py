"""The records that clients wrote and those in the log afterwards, and the judge of both: invariants 1, 2, 26 and 27.

Each record has the name of its producer and its number, so that lost, doubled or reordered records can be named.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.chaos.producer_epochs import producer_epoch
from tests.effort import RECORDS_PER_SECOND

TOPIC = "chaos"
PARTITIONS = 4
DELIVERY_SECONDS_MAX = 120
FLUSH_SECONDS_MAX = 60
READ_SECONDS_MAX = 120
IN_SYNC_SECONDS_MAX = 90
_VALUE = struct.Struct(">iq")
UNKNOWN_OFFSET = UNKNOWN_EPOCH = -1
#: Settings of a client that is back soon after each of many accidents.
IMPATIENT = {
    "linger.ms": 1,
    "message.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
    "queue.buffering.max.messages": 5000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    # the client decides how long it waits for a sleeping or cut-off broker, which keeps its connections
    "socket.timeout.ms": 3000,
}
#: Settings with one request at a time to each broker: the client then raises its producer epoch less often
#: (producer_epochs.py).
ONE_IN_FLIGHT = {**IMPATIENT, "max.in.flight.requests.per.connection": 1}


class Record(NamedTuple):
    producer: int
    number: int


class Place(NamedTuple):
    """The place where a record stands. An acknowledgement may have no offset (UNKNOWN_OFFSET): librdkafka takes a batch whose
    response was lost for acknowledged when the next batch of the sequence is. The producer epoch is looked up for records that
    stand in the log more than once.
    """

    partition: int
    offset: int
    producer_epoch: int = UNKNOWN_EPOCH


def encode(record: Record) -> bytes:
    return _VALUE.pack(*record)


def decode(value: bytes) -> Record:
    return Record(*_VALUE.unpack_from(value))


def create_topic(bootstrap: str, replicas: int, topic: str = TOPIC, **configs: str) -> None:
    """Create the topic, and retry after a lost connection, as Java's admin client does and librdkafka's does not.

    A broker that no controller has answered for a session, and no other broker twice in a row, disconnects its clients: while a
    controller is elected on a busy machine a healthy broker may do so.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    # The name keeps the client alive: its end would end the request.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    deadline, is_again = time.monotonic() + 30, False
    while True:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, replicas, config=wanted)])[topic].result(30)
            return
        except KafkaException as failure:
            code = failure.args[0].code()
            if is_again and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # created by the request whose response was lost
            if code != KafkaError._TRANSPORT or time.monotonic() > deadline:
                raise
            is_again = True


class Load:
    """An idempotent librdkafka producer in a thread, with acks=all. It remembers which records were acknowledged, where and
    when.

    It writes `per_second` records, or as fast as responses come, so that requests are in flight at every accident.
    """

    def __init__(
        self,
        bootstrap: str,
        producer: int = 0,
        *,
        topic: str = TOPIC,
        partitions: int = PARTITIONS,
        padding: int = 0,
        per_second: int | None = RECORDS_PER_SECOND,
        settings: Mapping[str, Any] = IMPATIENT,
    ) -> None:
        from confluent_kafka import Producer

        self.number = producer
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[Record, Place] = {}
        self.times: list[float] = []
        self.failed: list[str] = []
        self._partitions = partitions
        self._padding = bytes(padding)
        self._per_second = per_second
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
            self.failed.append(f"{left} records neither acknowledged nor refused after {FLUSH_SECONDS_MAX} s")

    def wait_for_acknowledgements(self, more: int) -> None:
        """Wait until this number of further records is acknowledged: the client has found the leaders again."""
        target = len(self.acknowledged) + more
        deadline = time.monotonic() + DELIVERY_SECONDS_MAX
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, "the client did not get through"
            time.sleep(0.001)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            value = encode(Record(self.number, self.sent)) + self._padding
            partition = self.sent % self._partitions
            try:
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            if self._per_second is not None:
                while (early := began + self.sent / self._per_second - time.monotonic()) > 0:
                    self._producer.poll(early)
            elif self.sent % 20 == 0:
                self._producer.poll(0.01)  # returns at the first response

    def _delivered(self, error: Any, message: Any) -> None:
        record = decode(message.value())
        if error is not None:
            self.failed.append(f"{record}: {error}")
        else:
            self.times.append(time.monotonic())
            offset = message.offset()
            self.acknowledged[record] = Place(message.partition(), UNKNOWN_OFFSET if offset is None else offset)


def read_everything(
    bootstrap: str, topic: str = TOPIC, partitions: int = PARTITIONS, *, leaders_change: bool = False
) -> dict[Record, list[Place]]:
    """Return every record of the topic, with the places where it stands.

    `leaders_change`: leaders of the topic changed under its producers, who may have written records again with another epoch.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    deadline = time.monotonic() + READ_SECONDS_MAX
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    # A new leader may show fetches an older end for a moment, as Kafka's does. It answers ListOffsets only once it knows the
    # end.
    ends = {partition: _end_of(consumer, topic, partition, deadline) for partition in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    places: dict[Record, list[Place]] = {}
    ended: set[int] = set()
    while len(ended) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(5000, 1.0):
            error = message.error()
            if error is None:
                place = Place(message.partition(), message.offset())
                places.setdefault(decode(message.value()), []).append(place)
            elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
    consumer.close()
    assert len(ended) == partitions, "the log could not be read to its end"
    for record, where in places.items():
        if leaders_change and len(where) > 1:
            places[record] = [at._replace(producer_epoch=producer_epoch(bootstrap, topic, *at[:2])) for at in where]
    return places


def _end_of(consumer: Any, topic: str, partition: int, deadline: float) -> int:
    """Return the end that the partition's leader names; the leader may change meanwhile."""
    from confluent_kafka import KafkaException, TopicPartition

    while True:
        left = max(1.0, deadline - time.monotonic())
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), left)
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
        else:
            return int(end)


def judge(loads: Iterable[Load], places: Mapping[Record, list[Place]]) -> list[str]:
    """Return what is wrong with the log; nothing if every promise held."""
    problems: list[str] = []
    acknowledged: dict[Record, Place] = {}
    for load in loads:
        problems += [f"failed: {text}" for text in load.failed[:5]]
        acknowledged |= load.acknowledged
    return (problems + broken_promises(acknowledged, places))[:20]


def broken_promises(acknowledged: Mapping[Record, Place], places: Mapping[Record, list[Place]]) -> list[str]:
    problems: list[str] = []
    lost = [record for record in acknowledged if record not in places]
    # A record is doubled if one producer epoch has written it twice: with another epoch the client has written it again.
    doubled = [record for record, where in places.items() if len(where) > len({at.producer_epoch for at in where})]
    moved = [
        record
        for record, where in acknowledged.items()
        if where.offset != UNKNOWN_OFFSET and record in places and where[:2] not in [at[:2] for at in places[record]]
    ]
    for name, records in (("lost", lost), ("doubled", doubled), ("moved", moved)):
        if records:
            first = [(record, acknowledged.get(record), places.get(record)) for record in sorted(records)[:3]]
            problems.append(f"{len(records)} {name}, first (record, acknowledged at, found at) {first}")
    last: dict[tuple[int, int], int] = {}
    for place, record in sorted((where[0], record) for record, where in places.items()):
        key = (place.partition, record.producer)
        if record.number < last.get(key, -1):
            problems.append(f"{record} at {place} stands behind number {last[key]}")
        last[key] = record.number
    return problems
