"""Topics that brokers keep as tables: what stock clients have written and committed is there once, read by the formats' own libraries."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from ottla.testing import Cluster
from tests.ottla.tables.test_export import READERS, delta, iceberg, parquet

FAST = {"ottla.table.commit.interval.ms": "200"}
TIMEOUT_S = 60.0
LIBRARIES = ("pyarrow", "pyiceberg", "deltalake", "obstore", "numpy")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as started:
        yield started


def place(cluster: Cluster, topic: str) -> Path:
    return Path(cluster.directory) / "tables" / "ottla" / topic


def write(cluster: Cluster, topic: str, count: int, first: int = 0) -> None:
    """Records of a usual producer, and of transactions that commit and abort."""
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    for number in range(first, first + count):
        plain.produce(topic, f"value {number}", f"key {number}", partition=number % 2)
    plain.flush()
    for name, commits in (("committed", True), ("aborted", False)):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic} {name}"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, f"{name} {first}", partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()


def wait_for_rows(cluster: Cluster, topic: str, format_: str, count: int) -> dict[tuple[int, int], Any]:
    """The values by partition and offset, once there are so many; fails if a place is there twice."""
    deadline = time.monotonic() + TIMEOUT_S
    rows: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        try:
            rows = READERS[format_](place(cluster, topic))
        except (ValueError, OSError, Exception) as fault:  # the table is not there yet
            last = fault
        if len(rows) >= count:
            break
        time.sleep(0.1)
    else:
        raise AssertionError(f"{len(rows)} of {count} rows: {last if not rows else ''}\n{log_of(cluster)}")
    found = {(row["_kafka"]["partition"], row["_kafka"]["offset"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def log_of(cluster: Cluster) -> str:
    return "\n".join(file.read_text()[-3000:] for file in Path(cluster.directory).rglob("server.log"))


@pytest.mark.parametrize("format_", READERS)
def test_each_committed_record_becomes_a_row_while_producers_write(cluster: Cluster, format_: str) -> None:
    cluster.topic(format_, partitions=2, configs={"ottla.table.format": format_, **FAST})
    write(cluster, format_, 300)
    wait_for_rows(cluster, format_, format_, 301)
    write(cluster, format_, 300, first=300)
    found = wait_for_rows(cluster, format_, format_, 602)
    assert found == {(record.partition, record.offset): record.value for record in cluster.records(format_, 602)}
