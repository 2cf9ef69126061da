"""Apache Kafka and Ottla read and go on with each other's remote segments and `__remote_log_metadata` (KIP-405)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing import Cluster
from ottla.testing.cluster import METADATA_VERSION
from ottla.testing.connection import ClusterConnection
from tests.broker.conftest import eventually
from tests.cluster.test_mixed import OF_BOTH
from tests.cluster.test_tiers import (
    COUNT,
    VALUE,
    create,
    local_start,
    numbers,
    offset,
    replicas_of,
    segments,
    tiered_cluster,
    write,
)
from tests.needs import needs_apache_kafka
from tools.apache_kafka import TOOLS, java_command, run_tool
from tools.apache_kafka.jars import tiers_classpath

pytestmark = [pytest.mark.compat, needs_apache_kafka, pytest.mark.timeout(300)]

#: Properties that Kafka needs besides. By default its first check of retention is half a minute after its start.
OF_KAFKA = {
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "log.initial.task.delay.ms": "500",
}


@contextmanager
def apache_kafka(cluster: Cluster, store: Path, node_id: int = 1, *, plugin: str = "", **more: str) -> Iterator[None]:
    """Run the stopped node as Apache Kafka on its directory, with its properties and its store; stop it cleanly.

    `plugin` is the classpath of another RemoteStorageManager, and `more` are properties for it, with underscores for dots.
    """
    folder = Path(cluster.nodes[node_id].dir)
    own = OF_KAFKA | {"rsm.config.dir": str(store)} | {name.replace("_", "."): text for name, text in more.items()}
    properties = cluster._properties[node_id] | own
    file = folder / "kafka.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    command = java_command(TOOLS["kafka-server-start"], str(file), extra_classpath=plugin or tiers_classpath())
    with (folder / "kafka.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(lambda: _brokers_of(cluster.node(node_id).port), "Apache Kafka answers", 90)
            yield
        finally:
            process.terminate()
            process.wait(60)


def _brokers_of(port: int) -> int:
    with ClusterConnection("127.0.0.1", port, None) as connection:
        return len(connection.request(MetadataRequest(topics=[]), ApiKey.METADATA, METADATA_VERSION).brokers)


def paid(cluster: Cluster, topic: str, first: int, count: int) -> list[int]:
    """Write transactions of six records; every third one is aborted. Return the numbers of the others."""
    producer = cluster.producer(transactional_id="payer", linger_ms=0)
    producer.init_transactions(60)
    kept: list[int] = []
    for number in range(first, first + count):
        producer.begin_transaction()
        for part in range(6):
            producer.produce(topic, value=b"%06d" % (number * 6 + part) + VALUE)
        producer.flush()
        if number % 3:
            producer.commit_transaction(30)
            kept += range(number * 6, number * 6 + 6)
        else:
            producer.abort_transaction(30)
    return kept


def committed(cluster: Cluster, topic: str, count: int) -> list[int]:
    consumer = cluster.consumer(isolation_level="read_committed")
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while len(found) < count:
            batch = consumer.consume(500, 20)
            assert batch, f"{len(found)} of {count} records came"
            found += [int((message.value() or b"")[:6]) for message in batch]
    finally:
        consumer.close()
    return found


def test_each_goes_on_with_what_the_other_stored(tmp_path: Path) -> None:
    with tiered_cluster(1, tmp_path, **OF_BOTH) as cluster:

        def all_stored(topic: str) -> None:
            eventually(lambda: len(segments(cluster, topic)) == 1, f"the active segment of {topic} alone is here", 90)

        def check(count: int, kept: list[int]) -> None:
            assert numbers(cluster, "events", count) == list(range(count))
            assert committed(cluster, "paid", len(kept)) == kept
            assert offset(cluster, "events", OffsetSpec.earliest()) == 0
            for number in (0, 37, local_start(cluster, "events") - 1, count - 1):
                assert offset(cluster, "events", OffsetSpec.for_timestamp(1_700_000_000_000 + number * 1_000)) == number

        create(cluster, "events")
        create(cluster, "paid")
        write(cluster, "events", 0, COUNT)
        kept = paid(cluster, "paid", 0, 60)
        all_stored("events")
        all_stored("paid")
        cluster.stop(1)

        with apache_kafka(cluster, tmp_path):
            check(COUNT, kept)
            write(cluster, "events", COUNT, COUNT)
            kept += paid(cluster, "paid", 60, 60)
            all_stored("events")
            all_stored("paid")
            check(2 * COUNT, kept)

        cluster.start(1)
        check(2 * COUNT, kept)
        write(cluster, "events", 2 * COUNT, COUNT)
        all_stored("events")
        check(3 * COUNT, kept)

        # Ottla deletes segments that Kafka has stored, too.
        gone = confluent_kafka.TopicPartition("events", 0, COUNT + COUNT // 2)
        admin = AdminClient(cluster.client_settings)
        admin.delete_records([gone])[gone].result(30)
        eventually(
            lambda: all(int(path.name[:20]) >= COUNT for path in tmp_path.rglob("events-0-*/*.log")),
            "segments leave the store",
            30,
        )
        assert offset(cluster, "events", OffsetSpec.earliest()) == COUNT + COUNT // 2
        cluster.stop(1)

        files = sorted(Path(cluster.node(1).data_dir).glob("__remote_log_metadata-*/*.log"))
        dumped = run_tool(
            "kafka-dump-log", "--remote-log-metadata-decoder", "--files", ",".join(map(str, files))
        ).stdout
        assert "DELETE_SEGMENT_FINISHED" in dumped
        assert "Failed" not in dumped and "could not" not in dumped.lower(), dumped[-2000:]


def test_each_is_a_new_replica_of_the_others_log(tmp_path: Path) -> None:
    """The beginning of the log is in the store only: the new replica gets in sync without it, and then leads alone."""
    with tiered_cluster(3, tmp_path, **OF_BOTH) as cluster:
        create(cluster, "moved")
        replicas_of(cluster, "moved", 1)
        write(cluster, "moved", 0, COUNT)
        eventually(lambda: len(segments(cluster, "moved", 1)) == 1, "the active segment alone is here", 60)
        cluster.stop(3)
        with apache_kafka(cluster, tmp_path, 3):
            for old, new, count in ((1, 3, COUNT), (3, 2, 2 * COUNT)):
                replicas_of(cluster, "moved", old, new)
                assert local_start(cluster, "moved", new) >= local_start(cluster, "moved", old) > count - COUNT // 2
                replicas_of(cluster, "moved", new)
                assert numbers(cluster, "moved", count) == list(range(count))
                write(cluster, "moved", count, COUNT)
                eventually(lambda new=new: len(segments(cluster, "moved", new)) == 1, "the new leader copies on", 90)
                assert numbers(cluster, "moved", count + COUNT) == list(range(count + COUNT))
