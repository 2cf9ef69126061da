"""`ottla rewind`: records, offsets, transactions, topics and settings of a fork as they were at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.client.failures import Failure
from ottla.local.snapshots.rewinding import rewind_fork
from ottla.testing import Cluster
from ottla.testing.snapshots import ClusterSnapshot
from tests.ottla.conftest import run_here

pytestmark = pytest.mark.timeout(120)
GROUP = "shop"
SECONDS_MAX = 30


class History:
    """The changes to a cluster, and the time between the two halves of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        cluster.topic("stock", seed=["1", "2", "3"])
        cluster.topic("deleted-later", seed=["x"])
        self.commit(2)
        self.open = self.producer("open-then")
        self.open.begin_transaction()
        self.open.produce("stock", b"never committed then")
        self.open.flush(SECONDS_MAX)
        self.transaction("done-then", b"4")
        self.retention("1000000")
        time.sleep(0.05)
        self.between_ms = time.time_ns() // 1_000_000
        time.sleep(0.05)
        self.retention("2000000")
        self.open.commit_transaction(SECONDS_MAX)
        self.late("written later, and old", timestamp=1_000)
        self.transaction("done-later", b"5")
        self.commit(4)
        cluster.topic("made-later", seed=["y"])
        self.admin.delete_topics(["deleted-later"])["deleted-later"].result(SECONDS_MAX)

    def producer(self, transactional_id: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(SECONDS_MAX)
        return producer

    def transaction(self, transactional_id: str, value: bytes) -> None:
        producer = self.producer(transactional_id)
        producer.begin_transaction()
        producer.produce("stock", value)
        producer.commit_transaction(SECONDS_MAX)

    def late(self, value: str, timestamp: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        producer.produce("stock", value.encode(), timestamp=timestamp)
        assert producer.flush(SECONDS_MAX) == 0

    def commit(self, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition("stock", 0, offset)], asynchronous=False)
        consumer.close()

    def retention(self, value: str) -> None:
        entry = ConfigEntry("retention.bytes", value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, "stock", incremental_configs=[entry])
        self.admin.incremental_alter_configs([wanted])[wanted].result(SECONDS_MAX)


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    with Cluster(1) as cluster:
        yield History(cluster)


@pytest.fixture(scope="module")
def snapshot(history: History) -> Iterator[ClusterSnapshot[Cluster]]:
    with history.cluster.snapshot() as taken:
        yield taken


def committed_records(cluster: Cluster, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe(["stock"])
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, found
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_a_fork_is_rewound_to_what_was_at_the_time_and_goes_on_from_there(
    history: History, snapshot: ClusterSnapshot[Cluster], tmp_path: Path
) -> None:
    fork = snapshot.fork(str(tmp_path / "fork"))
    before = contents(fork.directory)
    words = ("rewind", "--dir", fork.directory, "--to", f"@{history.between_ms}")
    shown = run_here(*words, "--dry-run", "-o", "json")
    assert shown.code == 0 and "nothing was changed (--dry-run)" in shown.err
    assert contents(fork.directory) == before
    done = rewind_fork(fork.directory, history.between_ms)
    assert json.loads(shown.out)["removed_records"] == done.removed_records
    assert done.removed_topics == ["made-later"]
    assert done.empty_topics == ["deleted-later"]
    assert done.removed_records > 0
    with fork:
        fork.advance(minutes=2)  # the timeout of the open transaction
        fork.write("stock", ["of the fork"])
        assert committed_records(fork, 5) == [b"1", b"2", b"3", b"4", b"of the fork"]
        names = {topic.name for topic in fork.metadata(None).topics}
        assert {"stock", "deleted-later"} <= names and "made-later" not in names
        resource, admin = (
            ConfigResource(ResourceType.TOPIC, "stock"),
            AdminClient({"bootstrap.servers": fork.bootstrap}),
        )
        configs = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
        assert configs["retention.bytes"].value == "1000000"
        consumer = Consumer({"bootstrap.servers": fork.bootstrap, "group.id": GROUP})
        assert consumer.committed([TopicPartition("stock", 0)], SECONDS_MAX)[0].offset == 2
        consumer.close()


def contents(directory: str) -> dict[str, bytes]:
    files = (path for path in Path(directory).rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): path.read_bytes() for path in files}


def refused(directory: str, to_ms: int) -> str:
    with pytest.raises(Failure) as failure:
        rewind_fork(directory, to_ms)
    return failure.value.text()


def test_what_cannot_be_rewound_is_refused_and_stays_as_it_is(
    history: History, snapshot: ClusterSnapshot[Cluster], tmp_path: Path
) -> None:
    assert "is no fork" in refused(history.cluster.directory, history.between_ms)
    fork = snapshot.fork(str(tmp_path / "fork"))
    before = sorted(str(path) for path in Path(fork.directory).rglob("*"))
    assert "in the future" in refused(fork.directory, time.time_ns() // 1_000_000 + 60_000)
    assert "is not kept" in refused(fork.directory, 1_000_000)
    done = run_here("rewind", "--dir", fork.directory, "--to", "yesterday")
    assert done.code == 2 and "yesterday" in done.err
    assert sorted(str(path) for path in Path(fork.directory).rglob("*") if path.name != ".lock") == before
    with fork:
        assert "in use by process" in refused(fork.directory, history.between_ms)
        fork.kill(1)
        assert "was not stopped in order" in refused(fork.directory, history.between_ms)
