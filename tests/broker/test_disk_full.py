"""A node on a full disk: Produce fails with KAFKA_STORAGE_ERROR, reads go on, and writes go on once there is room again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.cli.errors import TIMED_OUT, UNHEALTHY
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import ROOT, Node, eventually, start_node, stop_node
from tests.broker.records import batch
from tests.broker.wire import Wire
from tests.needs import small_disk as mounted
from tests.ports import free_ports

TOPIC = "filling"
VALUE = bytes(100_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "8m") as where:
        yield where


def produce(wire: Wire) -> int:
    data = [PartitionProduceData(index=0, records=batch([VALUE]))]
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    return int(wire.request(request, 9).responses[0].partition_responses[0].error_code)


def bytes_readable(wire: Wire) -> int:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 30, topics=[FetchTopic(topic=TOPIC, partitions=partitions)]
    )
    answer = wire.request(request, 11).responses[0].partitions[0]
    assert answer.error_code == 0
    return len(answer.records)


def fill(wire: Wire) -> tuple[int, int]:
    """Produce until the disk is full; return (records acknowledged, the error of the next one)."""
    for acknowledged in range(1000):
        if error := produce(wire):
            return acknowledged, error
    raise AssertionError("the disk never filled up")


def test_a_full_disk_refuses_produce_keeps_reads_and_takes_writes_again_once_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2_000_000))
    admin_port = free_ports(1)[0]
    node: Node = start_node(small_disk / "data", **{"ottla.admin.listener": f"127.0.0.1:{admin_port}"})

    def readiness() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/readyz", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    try:
        node.create(TOPIC)
        with node.wire() as wire:
            acknowledged, error = fill(wire)
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            assert acknowledged > 5
            time.sleep(1.5)  # the scheduled tasks meet the full disk, too
            assert bytes_readable(wire) >= acknowledged * len(VALUE)
            eventually(lambda: "[-] disk space" in readiness(), "the full disk to be shown")
            assert f"Cannot append to {TOPIC}-0: no space left in {small_disk / 'data'}" in readiness()
            ballast.unlink()
            eventually(lambda: produce(wire) == 0, "a produce to be taken again")
            assert bytes_readable(wire) >= (acknowledged + 1) * len(VALUE)
            eventually(lambda: "[+] disk space" in readiness(), "the room to be shown")
    finally:
        assert stop_node(node) == 0


def take_the_rest(disk: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def ottla(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ottla", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60
    )


def test_a_combined_node_outlives_a_full_disk_with_idle_time_and_an_abort(small_disk: Path) -> None:
    """An idle quorum writes to its log twice a second, and an abort writes to the transaction index of its segment: before the
    fix both ended the node.
    """
    from confluent_kafka import KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin_port = free_ports(1)[0]
    node = start_node(
        small_disk / "data",
        **{"ottla.admin.listener": f"127.0.0.1:{admin_port}", "metadata.max.idle.interval.ms": "2"},
    )

    def get(path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    client = {"bootstrap.servers": f"127.0.0.1:{node.port}", "log_level": 0}
    try:
        node.create(TOPIC)
        transactional = Producer({**client, "transactional.id": "t"})
        transactional.init_transactions(30)
        transactional.begin_transaction()
        transactional.produce(TOPIC, b"aborted")
        assert transactional.flush(30) == 0
        ballast = take_the_rest(small_disk)
        with node.wire() as wire:
            assert fill(wire)[1] == ErrorCode.KAFKA_STORAGE_ERROR
            eventually(lambda: "[-] metadata disk space" in get("/readyz"), "the shortage to be shown")
            assert "ottla_metadata_log_short_of_room 1" in get("/metrics")
            admin = AdminClient(client)
            with pytest.raises(KafkaException) as refused:
                admin.create_topics([NewTopic("more", 1, 1)])["more"].result(30)
            assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
            assert "no room for changes of metadata" in refused.value.args[0].str()
            transactional.abort_transaction(30)  # the coordinator keeps the transaction until its marker finds room
            assert produce(wire) == ErrorCode.KAFKA_STORAGE_ERROR
            health = get("/healthz")
            assert "[+] metadata log" in health and "[-]" not in health, "an orchestrator does not start it again"
            ballast.unlink()
            eventually(lambda: produce(wire) == 0, "a produce to be taken again")
        eventually(lambda: "[+] metadata disk space" in get("/readyz"), "the room to be noticed")
        node.create("more")
        transactional.begin_transaction()
        transactional.produce(TOPIC, b"committed")
        transactional.commit_transaction(30)
    finally:
        assert stop_node(node) == 0


@pytest.mark.chaos
def test_the_command_line_names_the_full_disk(small_disk: Path) -> None:
    """Before the fix `ottla produce` gave up "while looking for the leaders", and `ottla cluster health` said "healthy"."""
    node = start_node(small_disk / "data")
    try:
        node.create(TOPIC)
        with node.wire() as wire:
            fill(wire)
        take_the_rest(small_disk)
        bootstrap = f"127.0.0.1:{node.port}"
        produced = ottla("produce", TOPIC, "-b", bootstrap, "--timeout", "8", stdin=f"{'x' * 300_000}\n")
        assert produced.returncode == TIMED_OUT
        assert f"producing to partition {TOPIC}-0, which is answered KAFKA_STORAGE_ERROR" in produced.stderr
        health = ottla("cluster", "health", "-b", bootstrap)
        assert health.returncode == UNHEALTHY
        assert f"no space left in log directory {small_disk / 'data'}" in health.stdout
    finally:
        stop_node(node)


@pytest.mark.chaos
def test_a_node_that_was_killed_on_a_full_disk_asks_for_room_and_starts_with_a_little(small_disk: Path) -> None:
    """The node writes leader epochs and its vote before it serves clients. After that it can make room by itself."""
    node = start_node(small_disk / "data")
    node.create(TOPIC)
    with node.wire() as wire:
        acknowledged, _ = fill(wire)
    ballast = take_the_rest(small_disk)
    os.kill(node.pid, signal.SIGKILL)
    node.process.wait(30)
    refused = ottla("dev", "--nodes", "1", "--base-port", str(node.port), "--dir", str(small_disk / "data"))
    assert refused.returncode == 1
    assert "No space left on device" in refused.stderr and "try: make a few MiB of room" in refused.stderr
    os.truncate(ballast, ballast.stat().st_size // 2)
    again = start_node(small_disk / "data", node.port)
    try:
        with again.wire() as wire:
            assert bytes_readable(wire) >= acknowledged * len(VALUE)
    finally:
        assert stop_node(again) == 0
