"""A node with topics that are tables: what producers notice of the tables, and how long a table needs to catch up a gigabyte."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.servers import Server, spinning, start_ottla
from benchmarks.steady.clients import Child
from benchmarks.steady.table import delays
from benchmarks.topic_tables.page import Figure
from benchmarks.turns import run_load
from benchmarks.usage import anonymous_megabytes, cpu_seconds, tree_cpu_seconds
from ottla.server.config.tables.topic_tables import FORMAT, ICEBERG, INTERVAL
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.table_location import TableLocation

RATE = 500
PARTITIONS = 6
VALUE_BYTES = 1_000
#: The number of different values: repeated values within a file would become a dictionary of Parquet.
VARIED = 20_000
TABLE = {FORMAT: ICEBERG, INTERVAL: "1000"}
BACKLOG, WARM = "backlog", "warm"
QUIET, SPINNING, CATCHING_UP = "quiet", "beside a process that only spins", "while a table catches up 1 GB"
#: The time until the load's consumer and producer are connected, and the time of the load alone.
LOAD_SECONDS, QUIET_SECONDS = 4.0, 8.0
CATCH_UP_SECONDS_MAX = 300
MANY_PARTITIONS, MEMORY_MB_MAX = 50, 350
TURNS = 3


@contextmanager
def node() -> Iterator[Server]:
    """Run one node whose process of tables has started already, because the first start takes two seconds."""
    server = start_ottla(1, tls=False)
    try:
        create(server, WARM, 1, TABLE)
        run_load("produce", {"bootstrap": server.bootstrap, "topic": WARM, "size": VALUE_BYTES, "count": 1_000})
        wait_until_it_has(server, WARM, 1_000)
        yield server
    finally:
        server.stop()


def beside_catch_up(records: int) -> Iterator[Figure]:
    """Yield the p99 of a steady load: alone, beside a process that only spins, and while a table catches up with an older topic.

    Stalls of some milliseconds make the p99 of a few seconds, so that each figure is a median of turns.
    """
    p99: dict[str, list[float]] = {name: [] for name in (QUIET, SPINNING, CATCHING_UP)}
    longest: dict[str, list[float]] = {name: [] for name in p99}
    seconds, used = list[float](), list[float]()
    with node() as server:
        for turn in range(TURNS):
            backlog, steady = f"backlog-{turn}", f"steady-{turn}"
            create(server, backlog, PARTITIONS)
            produce(server, backlog, records)
            create(server, steady, 1)
            load = Child("load", {"bootstrap": server.bootstrap, "topic": steady, "partitions": 1, "rate": RATE})
            try:
                load.begin()
                time.sleep(LOAD_SECONDS)
                times_ns = [time.perf_counter_ns()]
                time.sleep(QUIET_SECONDS)
                times_ns.append(time.perf_counter_ns())
                with spinning_as(table_process(server)):
                    time.sleep(QUIET_SECONDS)
                times_ns.append(time.perf_counter_ns())
                before = table_cpu(server)
                set_configs(server, backlog, TABLE)
                wait_until_it_has(server, backlog, records)
                times_ns.append(time.perf_counter_ns())
                used.append(table_cpu(server) - before)
                seconds.append((times_ns[3] - times_ns[2]) / 1e9)
                load.stop()
                found = load.figures()
            finally:
                load.kill()
            for name, (begin_ns, end_ns) in zip(p99, pairwise(times_ns), strict=True):
                seen = delays(found, begin_ns, end_ns)
                assert seen is not None
                p99[name].append(seen.p99)
                longest[name].append(seen.longest)
            delete(server, backlog)
            delete(server, steady)
    gigabytes = records * VALUE_BYTES / 1e9
    quiet = statistics.median(p99[QUIET])
    for name, found in p99.items():
        text = ", ".join(f"{each:.1f}" for each in found)
        note = f"p99 of each turn {text} ms; most {max(longest[name]):.0f} ms"
        goal = 2 * quiet if name == CATCHING_UP else None
        yield Figure(
            f"end to end at {RATE} records/s, p99, {name}", statistics.median(found), "ms", at_most=goal, note=note
        )
    note = f"{statistics.median(used) / gigabytes:.1f} CPU s/GB of the process beside the node"
    yield Figure("the same: caught up in", statistics.median(seconds) / gigabytes, "s/GB", at_most=30, note=note)


def full_speed(records: int) -> Iterator[Figure]:
    """Yield the rates of a producer without a limit, in turns: to a topic without a table, beside a process that only spins, and
    to a topic with a table.
    """
    rates: dict[str, list[float]] = {"plain": [], "spinning": [], "table": []}
    cpu: dict[str, list[float]] = {name: [] for name in rates}
    behind = list[float]()
    gigabytes = records * VALUE_BYTES / 1e9
    with node() as server:
        for turn in range(TURNS):
            for name in rates:
                topic = f"{name}-{turn}"
                create(server, topic, PARTITIONS, TABLE if name == "table" else {})
                used = cpu_seconds(server.pids)
                with spinning_as(table_process(server)) if name == "spinning" else nullcontext():
                    rates[name].append(produce(server, topic, records))
                cpu[name].append((cpu_seconds(server.pids) - used) / gigabytes)
                if name == "table":
                    began = time.monotonic()
                    wait_until_it_has(server, topic, records)
                    behind.append(time.monotonic() - began)
                delete(server, topic)
    plain = statistics.median(rates["plain"])
    for name, what in (("plain", "without a table"), ("spinning", SPINNING), ("table", "with a table")):
        rate = statistics.median(rates[name])
        notes = [
            f"{statistics.median(cpu[name]):.2f} CPU s/GB of the node; {100 * rate / plain:.0f} % of the rate without"
        ]
        notes += [f"the table has all of it {statistics.median(behind):.1f} s later"] if name == "table" else []
        goal = 0.85 * plain if name == "table" else None
        yield Figure(f"produce 1 KB at full speed, {what}", rate, "MB/s", at_least=goal, note="; ".join(notes))


@contextmanager
def spinning_as(pid: int) -> Iterator[None]:
    """Run a process that does nothing but take a processor, at the priority of another one: what is lost beside it is lost to any work."""
    niceness = os.getpriority(os.PRIO_PROCESS, pid)
    with spinning(1, lambda spinner: os.setpriority(os.PRIO_PROCESS, spinner, niceness)):
        yield


def memory(records: int) -> Iterator[Figure]:
    """Yield the most memory that the process of tables had until it has caught up with a topic of many partitions."""
    with node() as server:
        create(server, BACKLOG, MANY_PARTITIONS)
        produce(server, BACKLOG, records)
        set_configs(server, BACKLOG, TABLE)
        wait_until_it_has(server, BACKLOG, records)
        most, rest = most_megabytes(table_process(server)), anonymous_megabytes([table_process(server)])
    gigabytes = records * VALUE_BYTES / 1e9
    what = f"memory of the process of tables, {MANY_PARTITIONS} partitions with {gigabytes:g} GB caught up, the most"
    yield Figure(
        what, most, "MB", at_most=MEMORY_MB_MAX, note=f"libraries' files included; heap at the end {rest:.0f} MB"
    )


def produce(server: Server, topic: str, records: int) -> float:
    """Produce the records; return the MB/s."""
    options = {"bootstrap": server.bootstrap, "topic": topic, "size": VALUE_BYTES, "count": records, "varied": VARIED}
    done = run_load("produce", options)
    assert not done["errors"]
    return done["mb_per_s"]


def create(server: Server, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    options = {"bootstrap": server.bootstrap, "topic": topic, "partitions": partitions, "configs": configs or {}}
    run_load("create", options)


def set_configs(server: Server, topic: str, configs: dict[str, str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(server)  # a client that is garbage-collected loses its pending responses
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result(30)


def delete(server: Server, topic: str) -> None:
    admin = admin_of(server)
    for future in admin.delete_topics([topic]).values():
        future.result(30)


def admin_of(server: Server) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": server.bootstrap})


def tables_of(server: Server) -> Path:
    return server.directory / "tables"


def wait_until_it_has(server: Server, topic: str, records: int) -> None:
    """Wait until the table has all records. Raises TimeoutError."""
    location = TableLocation(DirectoryStore(str(tables_of(server))))
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while time.monotonic() < deadline:
        last = location.last_decision(topic)
        if last is not None and sum(row[0] for row in last.body["positions"].values()) >= records:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the table of {topic} does not have {records} records after {CATCH_UP_SECONDS_MAX} s")


def table_process(server: Server) -> int:
    """Return the process of tables: the only child of a node that has mapped Arrow's library."""
    for pid in server.pids:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):  # of the thread that has started them
            for child in children.read_text().split():
                if "/pyarrow/" in Path(f"/proc/{child}/maps").read_text():
                    return int(child)
    raise ProcessLookupError("no process works on tables")


def most_megabytes(pid: int) -> float:
    """Return the most memory that a process has had, with the pages of its libraries' files."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def table_cpu(server: Server) -> float:
    """Return the CPU seconds of the node's children, of which only the process of tables works here."""
    return sum(tree_cpu_seconds(pid) for pid in server.pids) - cpu_seconds(server.pids)
