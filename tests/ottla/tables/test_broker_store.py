"""Brokers whose tables are in an S3 server that hangs or rejects requests; a topic that is created again; a large value.

The log goes on in each case.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "moto", "flask")

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ottla.tables.table_location import delta_options
from ottla.testing import Cluster
from tests.ottla.tables.conftest import BUCKET, S3Server

pytestmark = pytest.mark.timeout(300)
CONFIGS = {"ottla.table.format": "delta", "ottla.table.commit.interval.ms": "200"}
TIMEOUT_S = 120.0
LARGE = 20 << 20


@pytest.fixture(scope="module")
def cluster(s3_server: S3Server) -> Iterator[Cluster]:
    store = {f"ottla.table.store.{name}": value for name, value in s3_server.options.items()}
    more = {"ottla.table.location": f"s3://{BUCKET}/brokers", "ottla.table.call.timeout.ms": "1500"}
    with Cluster(1, per_node={1: store | more}) as started:
        yield started


def log_of(cluster: Cluster) -> str:
    return "\n".join(file.read_text()[-6000:] for file in Path(cluster.directory).rglob("server.log"))


def write(cluster: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "message.max.bytes": LARGE + 1_000_000, "linger.ms": 1}
    )
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def state_when(cluster: Cluster, topic: str, found: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the broker's description of a topic's table, once it is as expected."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with urlopen(f"http://127.0.0.1:{cluster.nodes[1].admin_port}/tables?topic={topic}") as answer:
            text = answer.read()
        state: dict[str, Any] = json.loads(text) if text else {}
        if state and found(state):
            return state
        assert time.monotonic() < deadline, f"{state}\n{log_of(cluster)}"
        time.sleep(0.1)


def rows_when(s3_server: S3Server, topic: str, count: int) -> list[bytes]:
    """Return the values in the order of their offsets, once there are this many."""
    deadline = time.monotonic() + TIMEOUT_S
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} rows"
        time.sleep(0.1)
        with suppress(DeltaError, OSError, TableNotFoundError):
            table = DeltaTable(f"s3://{BUCKET}/brokers/ottla/{topic}", storage_options=delta_options(s3_server.options))
            rows = table.to_pyarrow_table().to_pylist()
    return [row["value"] for row in sorted(rows, key=lambda row: row["_kafka"]["offset"])]


@pytest.mark.chaos
def test_while_the_store_hangs_producers_go_on_and_the_table_waits(cluster: Cluster, s3_server: S3Server) -> None:
    cluster.topic("hung", configs=CONFIGS)
    write(cluster, "hung", b"before")
    assert rows_when(s3_server, "hung", 1) == [b"before"]
    with s3_server.moods.hanging():
        write(cluster, "hung", b"meanwhile")
        state = state_when(cluster, "hung", lambda state: state["waits"])
        assert "no answer" in state["waits"]
        write(cluster, "hung", b"later")
    assert rows_when(s3_server, "hung", 3) == [b"before", b"meanwhile", b"later"]
    state_when(cluster, "hung", lambda state: state["waits"] is None)


def test_refused_credentials_are_the_reason_until_they_are_right(cluster: Cluster, s3_server: S3Server) -> None:
    with s3_server.moods.refusing():
        cluster.topic("refused", configs=CONFIGS)
        write(cluster, "refused", b"one")
        state = state_when(cluster, "refused", lambda state: state["waits"])
        assert "403" in state["waits"] or "enied" in state["waits"], state
        assert s3_server.options["secret_access_key"] not in state["waits"].split()
    assert rows_when(s3_server, "refused", 1) == [b"one"]


def test_a_topic_that_is_made_again_does_not_write_into_the_former_ones_table(
    cluster: Cluster, s3_server: S3Server
) -> None:
    cluster.topic("again", configs=CONFIGS)
    write(cluster, "again", b"former")
    assert rows_when(s3_server, "again", 1) == [b"former"]
    # a client that is garbage-collected takes its responses with it
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["again"])["again"].result(30)
    cluster.topic("again", configs=CONFIGS)
    write(cluster, "again", b"new")
    state = state_when(cluster, "again", lambda state: state["waits"])
    assert "has the rows of topic again" in state["waits"] and state["partitions"]["0"]["high_watermark"] == 1
    assert rows_when(s3_server, "again", 1) == [b"former"]


def test_a_value_of_20_mb_is_a_row(cluster: Cluster, s3_server: S3Server) -> None:
    value = b"".join(b"%016d" % number for number in range(LARGE // 16))
    cluster.topic("large", configs={**CONFIGS, "max.message.bytes": str(LARGE + 1_000_000)})
    write(cluster, "large", b"small", value, b"small")
    assert rows_when(s3_server, "large", 3) == [b"small", value, b"small"]
