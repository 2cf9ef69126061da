"""The two servers under test, behind one shape: bootstrap, pids, start and stop."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import raw
from tools.apache_kafka import ApacheKafka

OTTLA_PORT, KAFKA_PORT = 19092, 39092
QUIET = {"log.retention.check.interval.ms": "300000"}


@dataclass
class Server:
    """A running server; `stop` ends it and removes its data."""

    name: str
    bootstrap: str
    pids: list[int]
    version: str
    stop: object = field(repr=False)


def start_ottla(nodes: int = 1) -> Server:
    command = [
        sys.executable,
        "-m",
        "ottla.main",
        "dev",
        "--nodes",
        str(nodes),
        "--base-port",
        str(OTTLA_PORT),
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())

    def stop() -> None:
        process.send_signal(signal.SIGINT)
        process.wait(30)

    return Server("ottla", told["bootstrap"], [node["pid"] for node in told["nodes"]], "", stop)


def start_kafka(nodes: int = 1) -> Server:
    kafka = ApacheKafka(KAFKA_PORT, nodes)
    kafka.start()
    return Server("kafka", kafka.bootstrap, kafka.pids, "4.3.1", kafka.stop)


def ottla_first_ack_seconds() -> float:
    """From starting the process on an empty directory (it formats it itself) to the first acknowledged Produce."""
    data = tempfile.mkdtemp(prefix="ottla-bench-")
    port = OTTLA_PORT + 50
    overrides = {"listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}", "log.dirs": data,
                 "controller.quorum.voters": f"1@127.0.0.1:{port + 1}"}  # fmt: skip
    command = [sys.executable, "-m", "ottla.main", "start"]
    for name, value in overrides.items():
        command += ["--override", f"{name}={value}"]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return raw.first_ack("127.0.0.1", port, "first", begin + 30) - begin
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(data, ignore_errors=True)


def kafka_first_ack_seconds() -> tuple[float, float]:
    """The same for Apache Kafka: (seconds to format, seconds from starting the process to the first acknowledged Produce)."""
    kafka = ApacheKafka(KAFKA_PORT + 50)
    kafka._wait_until_ready = lambda begin: None  # type: ignore[method-assign]  # measured by the Produce below instead
    try:
        kafka.start()
        begin = time.monotonic()
        return kafka.format_seconds, raw.first_ack("127.0.0.1", KAFKA_PORT + 50, "first", begin + 60) - begin
    finally:
        kafka.stop()
        shutil.rmtree(Path(kafka.data), ignore_errors=True)
