"""`python -m benchmarks.stock`: a backlog read by each stock consumer with its default settings, from both servers in turns.

Each client gets the address, a group and the beginning as the place to start, nothing else, and its messages are counted in Python
as an application would count them. A pause is half a second without a message: librdkafka's queue is full, and it stops fetching for
fetch.queue.backoff.ms. A client's cores are those of its process from the first message to the last: one of pure Python that has a core
busy is as fast as it can be with any server. `--nodes 3` reads a topic of three replicas from its three leaders.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.servers import Server, start_kafka, start_ottla
from benchmarks.usage import ClientTime, MachineTime, cpu_seconds
from tools.apache_kafka import ToolSession, missing

PARTITIONS, SIZE = 6, 1_000
PAUSE_SECONDS = 0.5
RUN_SECONDS_MAX = 300


@dataclass
class Figures:
    """The runs of a client: records a second, pauses, the client's cores, and the server's CPU seconds for a gigabyte."""

    rate: list[float] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)


# -- The clients, each in a process of its own ---------------------------------------------------------------------------


def confluent(bootstrap: str, topic: str, at_once: int) -> Iterator[int]:
    """Yield the number of messages that each call returned; `at_once` 0 stands for `poll`."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic + str(time.time()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while True:
        messages = consumer.consume(at_once, 1.0) if at_once else [consumer.poll(1.0)]
        yield sum(message is not None and message.error() is None for message in messages)


def kafka_python(bootstrap: str, topic: str) -> Iterator[int]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic + str(time.time()), auto_offset_reset="earliest"
    )
    for _ in consumer:
        yield 1


async def aiokafka(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer

    counted = Counted(count)
    group = topic + str(time.time())
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        async for _ in consumer:
            if counted.add(1):
                break
    return counted.figures()


class Counted:
    """Counts messages: the time from the first to the last, and the pauses in between."""

    def __init__(self, count: int) -> None:
        self.count, self.got, self.pauses = count, 0, 0
        self.first = self.last = self.cores = 0.0
        self._used: ClientTime | None = None

    def add(self, some: int) -> bool:
        """Count `some` messages; return whether all have come."""
        now = time.perf_counter()
        if not some:
            return False
        if self._used is None:
            self.first, self._used = now, ClientTime()
        elif now - self.last > PAUSE_SECONDS:
            self.pauses += 1
        self.last = now
        self.got += some
        if self.got < self.count:
            return False
        self.cores = self._used.cores
        return True

    def figures(self) -> dict[str, float]:
        return {"rate": self.got / (self.last - self.first), "pauses": self.pauses, "client": self.cores}


def run_client(name: str, bootstrap: str, topic: str, count: int) -> dict[str, float]:
    if name == "aiokafka":
        import asyncio

        return asyncio.run(aiokafka(bootstrap, topic, count))
    calls = kafka_python(bootstrap, topic) if name == "kafka-python" else confluent(bootstrap, topic, CONFLUENT[name])
    counted = Counted(count)
    for some in calls:
        if counted.add(some):
            break
    return counted.figures()


def java(server: Server, topic: str, count: int) -> dict[str, float]:
    """Run Kafka's own consumer by kafka-consumer-perf-test; the time in which it was fetching counts."""
    with ToolSession() as tools:
        done = tools.run(
            "kafka-consumer-perf-test",
            "--bootstrap-server",
            server.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(count),
        )
    numbers = re.findall(r"[\d.]+", done.stdout.strip().splitlines()[-1].split(",", 2)[2])
    return {"rate": float(numbers[-1]), "pauses": 0, "client": math.nan}


CONFLUENT = {
    "confluent-kafka, poll()": 0,
    "confluent-kafka, consume(500)": 500,
    "confluent-kafka, consume(10000)": 10_000,
}
#: The share of the topic's records that each client reads: pure Python clients get a tenth, to take the same time.
CLIENTS: dict[str, float] = {
    **dict.fromkeys(CONFLUENT, 1.0),
    "kafka-python": 0.1,
    "aiokafka": 0.1,
    "Java, consumer-perf-test": 1.0,
}


# -- The turns -----------------------------------------------------------------------------------------------------------


def fill(server: Server, topic: str, count: int, replicas: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(30)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    value = b"x" * SIZE
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(RUN_SECONDS_MAX) == 0


def measured(server: Server, name: str, topic: str, count: int) -> dict[str, float]:
    used = cpu_seconds(server.pids)
    if name.startswith("Java"):
        found = java(server, topic, count)
    else:
        command = [sys.executable, "-m", "benchmarks.stock", "--client", name, server.bootstrap, topic, str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=RUN_SECONDS_MAX)
        found = json.loads(done.stdout)
    found["cpu"] = (cpu_seconds(server.pids) - used) / (count * SIZE / 1e9)
    return found


def compare(servers: list[Server], count: int, runs: int, only: str) -> dict[str, dict[str, Figures]]:
    topic, found = "stock", {name: {server.name: Figures() for server in servers} for name in CLIENTS if only in name}
    for server in servers:
        fill(server, topic, count, 3 if len(server.pids) == 3 else 1)
    for _ in range(runs):
        for name, by_server in found.items():
            for server in servers:
                figures = measured(server, name, topic, max(1, int(count * CLIENTS[name])))
                print(f"{name}, {server.name}: {figures}", file=sys.stderr, flush=True)
                for field_name in ("rate", "pauses", "cpu", "client"):
                    getattr(by_server[server.name], field_name).append(figures[field_name])
    return found


def stock_table(found: dict[str, dict[str, Figures]]) -> list[str]:
    lines = [
        "| stock consumer | Apache Kafka | pauses | Ottla | pauses | ratio | server's CPU | client's cores |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, by_server in found.items():
        theirs, ours = by_server.get("kafka"), by_server["ottla"]
        rate = statistics.median(ours.rate)
        cells = ["", "", "", f"{statistics.median(ours.cpu):.2f} s/GB", cores(ours)]
        if theirs:
            before, cpu = statistics.median(theirs.rate), statistics.median(theirs.cpu)
            cells = [
                rates(theirs),
                pauses(theirs),
                f"{rate / before:.2f}x",
                f"{cpu:.2f} and {statistics.median(ours.cpu):.2f} s/GB",
                f"{cores(theirs)}; {cores(ours)}",
            ]
        lines.append(
            f"| {name} | {cells[0]} | {cells[1]} | {rates(ours)} | {pauses(ours)} | {cells[2]} | {cells[3]} | {cells[4]} |"
        )
    return lines


def rates(figures: Figures) -> str:
    return f"{', '.join(f'{each / 1000:.0f}' for each in figures.rate)} k/s"


def cores(figures: Figures) -> str:
    """Return nothing for Java, whose start would count as well."""
    found = statistics.median(figures.client)
    return "" if math.isnan(found) else f"{found:.2f}"


def pauses(figures: Figures) -> str:
    return ", ".join(f"{each:.0f}" for each in figures.pauses)


def section(nodes: int, records: int, runs: int, only: str, *, with_kafka: bool) -> list[str]:
    """Return the conditions and the table: all clients whose name contains `only` read from both servers in turns."""
    starts: list[Callable[[int], Server]] = [start_kafka, start_ottla] if with_kafka else [start_ottla]
    clock, servers = MachineTime.now(), list[Server]()
    try:
        servers.extend(start(nodes) for start in starts)
        found = compare(servers, records, runs, only)
    finally:
        for server in servers:
            server.stop()
    conditions = (
        f"{time.strftime('%Y-%m-%d %H:%M')}, {nodes} node(s) each, {records:,} records of {SIZE:,} bytes in {PARTITIONS} partitions, "
        f"{runs} turns. Stolen {clock.stolen_percent():.1f} %, load average {os.getloadavg()[0]:.1f}."
    )
    return [conditions, "", *stock_table(found)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.stock", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--records", type=int, default=1_200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="clients whose name holds this text")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--client", nargs=4, metavar=("NAME", "BOOTSTRAP", "TOPIC", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        name, bootstrap, topic, count = args.client
        print(json.dumps(run_client(name, bootstrap, topic, int(count))), flush=True)
        os._exit(0)  # a consumer that is closed commits and leaves its group: that is not measured
    print(
        "\n".join(
            section(args.nodes, args.records, args.runs, args.only, with_kafka=not args.no_kafka and not missing())
        )
    )


if __name__ == "__main__":
    main()
