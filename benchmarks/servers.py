"""The two servers under test, behind one shape: bootstrap, pids, start and stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks import raw
from ottla.commands import dev
from tools.apache_kafka import ApacheKafka

KAFKA_PORT = int(os.environ.get("BENCH_KAFKA_PORT", "39092"))
#: What `ottla dev` sets for three nodes, too: a topic made by asking for it has three replicas, two of which must be in sync.
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
START_SECONDS_MAX = 90


@dataclass
class Server:
    """Running nodes; `stop` ends them and removes their data."""

    name: str
    bootstrap: str
    pids: list[int]
    stop: Callable[[], None] = field(repr=False)


def start_ottla(nodes: int = 1) -> Server:
    command = [sys.executable, "-m", "ottla.main", "dev", "--nodes", str(nodes), "--base-port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())

    def stop() -> None:
        process.send_signal(signal.SIGINT)
        process.wait(60)

    return Server("ottla", told["bootstrap"], [node["pid"] for node in told["nodes"]], stop)


def start_kafka(nodes: int = 1) -> Server:
    kafka = ApacheKafka(KAFKA_PORT, nodes)
    kafka.start()
    return Server("kafka", kafka.bootstrap, kafka.pids, kafka.stop)


def ottla_first_ack_seconds(nodes: int = 1) -> float:
    """From starting the processes on empty directories (which they format themselves) to the first acknowledged Produce."""
    data = tempfile.mkdtemp(prefix="ottla-bench-")
    planned = dev.plan(nodes, 0, data)
    common = {"cluster.id": dev.cluster_id(data)}
    begin = time.monotonic()
    try:
        for node in planned:
            dev.start(node, dev.properties_of(node, planned) | common)
        return raw.first_ack([(dev.HOST, node.port) for node in planned], "first", begin + START_SECONDS_MAX) - begin
    finally:
        dev.stop(planned)
        shutil.rmtree(data, ignore_errors=True)


def kafka_first_ack_seconds(nodes: int = 1) -> tuple[float, float]:
    """The same for Apache Kafka: (seconds to format, seconds from starting the processes to the first acknowledged Produce)."""
    kafka = ApacheKafka(KAFKA_PORT + 50, nodes, properties=REPLICATED if nodes == 3 else None)
    kafka._wait_until_ready = lambda begin: None  # type: ignore[method-assign]  # measured by the Produce below instead
    try:
        kafka.start()
        begin = time.monotonic()
        addresses = [("127.0.0.1", KAFKA_PORT + 50 + i) for i in range(nodes)]
        return kafka.format_seconds, raw.first_ack(addresses, "first", begin + START_SECONDS_MAX) - begin
    finally:
        kafka.stop()
        shutil.rmtree(kafka.data, ignore_errors=True)
