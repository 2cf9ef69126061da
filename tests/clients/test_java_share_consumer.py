"""Apache Kafka's own share consumer and its console tool: every way of acknowledging; skipped with the reason where Java is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.conftest import Node, start_node, stop_node
from tests.broker.share.member import set_group
from tests.needs import needs_apache_kafka
from tools.apache_kafka import run_java, run_tool

pytestmark = [needs_apache_kafka, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "java" / "ShareConsumers.java"
#: The acquisition lock, which is longer than the time from a poll to its commit on a busy machine: a lock that times out adds a
#: delivery.
LOCK_MS = "8000"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node(group_share_min_record_lock_duration_ms="1000")
    yield started
    stop_node(started)


def produce(node: Node, topic: str, values: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % partitions)
    assert producer.flush(30) == 0


@pytest.mark.compat
def test_records_are_accepted_released_rejected_renewed_and_timed_out(node: Node) -> None:
    node.create("jobs")  # with one partition, which is assigned to both consumers of the program
    with node.wire() as wire:
        set_group(wire, "workers", share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS)
    produce(node, "jobs", range(30), partitions=1)
    printed = run_java(PROGRAM, node.bootstrap, "jobs", "workers").splitlines()
    counts = ", ".join(f"{value}={2 if value % 3 == 1 else 1}" for value in range(30))
    assert printed == [
        f"explicit {{{counts}}} committed",
        "held 30 x1",
        "renewed committed",
        "timed out 30 x2",
        "implicit committed",
    ]


@pytest.mark.compat
def test_the_console_share_consumer_reads_releases_and_rejects(node: Node) -> None:
    node.create("lines", 2)
    with node.wire() as wire:
        set_group(wire, "readers", share_auto_offset_reset="earliest")
    produce(node, "lines", range(10))

    def read(*options: str) -> list[list[str]]:
        """Return the delivery count and the value of each line."""
        done = run_tool(
            "kafka-console-share-consumer", "--bootstrap-server", node.bootstrap, "--topic", "lines", "--group", "readers",
            "--max-messages", "10", "--timeout-ms", "20000", "--formatter-property", "print.delivery=true", *options,
        )  # fmt: skip
        return sorted(line.split("\t") for line in done.stdout.splitlines())

    assert read("--release") == sorted(["Delivery:1", str(value)] for value in range(10))
    assert read("--reject") == sorted(["Delivery:2", str(value)] for value in range(10))
    produce(node, "lines", range(100, 110))
    assert read() == sorted(["Delivery:1", str(value)] for value in range(100, 110))
