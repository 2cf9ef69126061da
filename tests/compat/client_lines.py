"""The lines that stock clients print beside a node, compared with those that they print beside Apache Kafka 4.3.1.

Each client does the same work at both (stock_day.py, StockDay.java): produce, consume, groups, transactions, and a restart of
the broker. Lines are compared by their shapes: times, numbers, ids and addresses are left out. A shape that was seen beside a
node and never beside Apache Kafka, now or when `client_lines/<client>.txt` was recorded, is a difference. Which lines a restart
causes depends on its moment: each run beside Apache Kafka adds to the recorded ones (UPDATE=1 keeps them).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ottla.testing import Cluster
from tools.apache_kafka import ApacheKafka
from tools.apache_kafka.programs import compiled, java_command

HERE = Path(__file__).parent
RECORDED = HERE / "client_lines"
JAVA = HERE / "StockDay.java"
PYTHON_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
CLIENTS = (*PYTHON_CLIENTS, "java")
DAY_SECONDS_MAX = 180
APACHE_PORT = 27492
#: The time for which the server is down. Apache Kafka needs seconds to start, and the time decides what clients print: whether
#: they have given up all addresses by then.
DOWN_SECONDS = 3
ENV = {**os.environ, "PYTHONFAULTHANDLER": "1"}

SHAPED = (
    # A line of librdkafka is compared by its level, facility and text, a line of Java by its text. It is chance which client of
    # a program prints it.
    (re.compile(r"^%(\d)\|[\d.]+\|(\w+)\|\S+ \[thrd:[^]]*\]: (\S+: )*"), r"%\1|\2|"),
    (re.compile(r"\[\w+ clientId=[^]]*\]"), "[CLIENT]"),
    (re.compile(r"in-flight \w+ request"), "in-flight API request"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"(?<![\w+/-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z0-9])[\w+/-]{22}(?![\w+/-])"), "ID"),
    (re.compile(r"0x[0-9a-f]+|@[0-9a-f]{5,}\b"), "ID"),
    (re.compile(r"(?<!%)-?\d+(\.\d+)?"), "N"),
)


@dataclass(frozen=True)
class Day:
    """A client's work at one server, as a process."""

    client: str
    returncode: int
    seconds: float
    lines: tuple[str, ...]

    @property
    def shapes(self) -> set[str]:
        return {shape(line) for line in self.lines if line and not line[0].isspace()}


def shape(line: str) -> str:
    for pattern, text in SHAPED:
        line = pattern.sub(text, line)
    return line


def command(client: str, bootstrap: str) -> list[str]:
    if client != "java":
        return [sys.executable, "-m", "tests.compat.stock_day", client, bootstrap, f"day-{client}"]
    return java_command(JAVA.stem, bootstrap, "day-java", extra_classpath=str(compiled(JAVA)), jvm="-Xmx256M")


def days(clients: Iterable[str], bootstrap: str, restart: Callable[[], object]) -> list[Day]:
    """Run all clients side by side; `restart` is called once, when all of them are ready for it."""
    running: dict[str, subprocess.Popen[str]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        files = {client: Path(directory) / client for client in clients}
        try:
            for client, file in files.items():
                with file.open("wb") as output:
                    running[client] = subprocess.Popen(
                        command(client, bootstrap),
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, env=ENV,
                    )  # fmt: skip
            for process in running.values():
                assert process.stdout is not None
                process.stdout.readline()
            restart()
            return [
                Day(
                    client,
                    _ended(process),
                    time.monotonic() - began,
                    tuple(files[client].read_text(errors="replace").splitlines()),
                )
                for client, process in running.items()
            ]
        finally:
            for process in running.values():
                process.kill()
                process.wait()


def _ended(process: subprocess.Popen[str]) -> int:
    try:
        process.communicate("\n", timeout=DAY_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return -1
    return process.returncode


def at_ottla(clients: Iterable[str]) -> list[Day]:
    with Cluster(1) as cluster:

        def restart() -> None:
            cluster.stop(1)
            time.sleep(DOWN_SECONDS)
            cluster.start(1)

        return days(clients, cluster.bootstrap, restart)


def at_apache_kafka(clients: Iterable[str]) -> list[Day]:
    with tempfile.TemporaryDirectory() as data:
        kafka = ApacheKafka(APACHE_PORT, data=Path(data), jvm="-Xmx512M -XX:+UseSerialGC")

        def restart() -> None:
            kafka.stop()
            kafka.start()

        with kafka:
            found = days(clients, kafka.bootstrap, restart)
    if os.environ.get("UPDATE"):
        for day in found:
            record(day)
    return found


def recorded(client: str) -> set[str]:
    file = RECORDED / f"{client}.txt"
    return set(file.read_text().splitlines()) if file.exists() else set()


def record(day: Day) -> None:
    """Record the shapes of a client's lines beside Apache Kafka: the moment of the restart decides which lines come."""
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{day.client}.txt").write_text("\n".join(sorted(recorded(day.client) | day.shapes)) + "\n")


#: A librdkafka client that is closed while its background thread has an event prints this, with any broker.
OF_ITS_CLOSE = "BGQUEUE"


def unexpected(day: Day, seen_now: Iterable[str] = ()) -> list[str]:
    """Return the lines that have no shape of Apache Kafka's, each shape once."""
    seen, found = recorded(day.client) | set(seen_now), []
    for line in day.lines:
        if line and not line[0].isspace() and OF_ITS_CLOSE not in line and shape(line) not in seen:
            seen.add(shape(line))
            found.append(line)
    return found
