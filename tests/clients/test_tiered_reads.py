"""Stock clients read a topic whose first segments are in the store alone, and wait while the store is away (KIP-405)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest

from ottla.testing import Cluster
from tests.cluster.test_tiers import VALUE, create, local_start, tiered, tiered_cluster
from tests.needs import needs_apache_kafka
from tools.apache_kafka import run_java

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

TOPIC, UNREAD = "paid", "unread"
TRANSACTIONS, OF_EACH = 60, 6
#: The timestamps are later than those of transaction markers, because a search by time finds markers, too.
FIRST_MS = int(time.time() * 1000) + 600_000
JAVA = Path(__file__).with_name("java") / "TieredReader.java"
#: For how long clients look at a store that is away.
AWAY_S = 8

#: Offsets and the first six bytes of values.
Found = list[tuple[int, bytes]]


class Written(NamedTuple):
    """The records of committed transactions, by offset, and the end of the log."""

    records: dict[int, bytes]
    end: int

    def from_offset(self, start: int) -> Found:
        return [(offset, value) for offset, value in sorted(self.records.items()) if offset >= start]


def write(cluster: Cluster, topic: str) -> Written:
    """Write transactions of which every third one is aborted."""
    producer = cluster.producer(transactional_id=f"writer of {topic}", linger_ms=0)
    producer.init_transactions(30)
    kept: dict[int, bytes] = {}
    for number in range(TRANSACTIONS):
        part: dict[int, bytes] = {}

        def note(error: object, message: confluent_kafka.Message, part: dict[int, bytes] = part) -> None:
            assert error is None
            part[message.offset() or 0] = (message.value() or b"")[:6]

        producer.begin_transaction()
        for each in range(OF_EACH):
            value = b"%06d" % (number * OF_EACH + each) + VALUE
            producer.produce(topic, value, timestamp=FIRST_MS + number * OF_EACH + each, on_delivery=note)
        producer.flush()
        if number % 3:
            producer.commit_transaction(30)
            kept |= part
        else:
            producer.abort_transaction(30)
    return Written(kept, TRANSACTIONS * (OF_EACH + 1))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores") / "store"


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[Cluster]:
    with tiered_cluster(1, store) as running:
        yield running


def written_remotely(cluster: Cluster, topic: str) -> Written:
    """Write a new topic, and wait until three quarters of it are in remote storage alone."""
    create(cluster, topic, local_retention_bytes="1")  # the records are of the future
    found = write(cluster, topic)
    tiered(cluster, topic)
    assert local_start(cluster, topic) > found.end * 3 // 4
    return found


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Written:
    return written_remotely(cluster, TOPIC)


def by_librdkafka(cluster: Cluster, topic: str, start: int | str, end: int) -> Found:
    consumer = cluster.consumer(isolation_level="read_committed", enable_partition_eof="true")
    try:
        if isinstance(start, str):
            (place,) = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, int(start[1:]))], 20)
            start = place.offset
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
        found: Found = []
        while True:
            for message in consumer.consume(500, 20):
                if (error := message.error()) is None:
                    found.append((message.offset() or 0, (message.value() or b"")[:6]))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                    return found
    finally:
        consumer.close()


def by_kafka_python(cluster: Cluster, topic: str, start: int | str, end: int) -> Found:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="none"
    )
    place = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        if isinstance(start, str):
            start = consumer.offsets_for_times({place: int(start[1:])})[place].offset
        consumer.seek(place, start)
        found: Found = []
        while consumer.position(place) < end:
            for records in consumer.poll(1_000).values():
                found += [(each.offset, each.value[:6]) for each in records]
        return found
    finally:
        consumer.close()


def by_aiokafka(cluster: Cluster, topic: str, start: int | str, end: int) -> Found:
    async def read(start: int | str) -> Found:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="none"
        )
        place = aiokafka.TopicPartition(topic, 0)
        await consumer.start()
        try:
            consumer.assign([place])
            if isinstance(start, str):
                start = (await consumer.offsets_for_times({place: int(start[1:])}))[place].offset
            consumer.seek(place, start)
            found: Found = []
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [(each.offset, each.value[:6]) for each in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read(start))


def by_java(cluster: Cluster, topic: str, start: int | str, end: int) -> Found:
    lines = run_java(JAVA, cluster.bootstrap, topic, str(start), str(end)).splitlines()
    return [(int(offset), value.encode()) for offset, _, value in (line.partition(" ") for line in lines)]


def by_segment_files(cluster: Cluster, topic: str, start: int | str, end: int) -> Found:
    """Read as an executor of Spark does, with `format("ottla")`, `segments://` and addresses of brokers."""
    from ottla.spark.client.cluster import BlockingCluster
    from ottla.spark.options import ConnectorOptions
    from ottla.spark.planning import batch_ranges
    from ottla.spark.reader import read_range

    given = {"startingOffsets": f'{{"{topic}": {{"0": {start}}}}}'}
    if isinstance(start, str):
        given = {"startingTimestamp": start[1:]}
    options = ConnectorOptions(
        {
            "subscribe": topic,
            "segments": f"segments://{cluster.node(1).data_dir}",
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.isolation.level": "read_committed",
        }
        | given
    )
    with BlockingCluster(options.client) as brokers:
        (wanted,) = batch_ranges(brokers, options)
    assert wanted.end == end
    rows = [row for batch in read_range(options, wanted, ("offset", "value")) for row in batch.to_pylist()]
    return [(row["offset"], row["value"][:6]) for row in rows]


Reader = Callable[[Cluster, str, "int | str", int], Found]
READERS = [
    by_librdkafka,
    by_kafka_python,
    by_aiokafka,
    pytest.param(by_java, marks=needs_apache_kafka),
]


@pytest.mark.parametrize("read", [*READERS, by_segment_files])
def test_each_committed_record_is_read_from_the_beginning_a_time_and_an_offset_in_the_store(
    cluster: Cluster, written: Written, read: Reader
) -> None:
    assert read(cluster, TOPIC, 0, written.end) == written.from_offset(0)
    middle, value = written.from_offset(written.end // 3)[0]
    assert middle < local_start(cluster, TOPIC)
    assert read(cluster, TOPIC, middle, written.end) == written.from_offset(middle)
    assert read(cluster, TOPIC, f"@{FIRST_MS + int(value)}", written.end) == written.from_offset(middle)


@pytest.mark.parametrize("read", READERS)
def test_while_the_store_is_away_a_client_waits_and_then_reads_on(cluster: Cluster, store: Path, read: Reader) -> None:
    """The client keeps its offset and ends with no error, and no record is missing or another one."""
    topic = f"{UNREAD}-{getattr(read, '__name__', '').replace('_', '-')}"
    create(cluster, topic, local_retention_bytes="1")
    written = write(cluster, topic)
    tiered(cluster, topic)
    (folder,) = store.rglob(f"{topic}-0-*")
    away = folder.with_name(f"{folder.name}.away")
    folder.rename(away)
    try:
        began = time.monotonic()
        coming_back = threading.Timer(AWAY_S, away.rename, [folder])
        coming_back.start()
        assert read(cluster, topic, 0, written.end) == written.from_offset(0)
        assert time.monotonic() - began >= AWAY_S, "it did not need the store"
        coming_back.join()
    finally:
        if away.exists():
            away.rename(folder)
