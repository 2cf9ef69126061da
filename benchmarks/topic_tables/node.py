"""A node with topics that are tables: what producers notice of the tables, and how long a table needs to catch up a gigabyte."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.servers import Server, start_ottla
from benchmarks.steady.clients import Child
from benchmarks.steady.table import delays
from benchmarks.topic_tables.page import Figure
from benchmarks.turns import run_load
from benchmarks.usage import cpu_seconds, tree_cpu_seconds
from ottla.server.config.tables.topic_tables import FORMAT, ICEBERG, INTERVAL
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.table_location import TableLocation

RATE = 500
PARTITIONS = 6
VALUE_BYTES = 1_000
#: The number of different values: repeated values within a file would become a dictionary of Parquet.
VARIED = 20_000
TABLE = {FORMAT: ICEBERG, INTERVAL: "1000"}
BACKLOG, STEADY, WARM = "backlog", "steady", "warm"
#: The time until the load's consumer and producer are connected, and the time of the load alone.
LOAD_SECONDS, QUIET_SECONDS = 4.0, 10.0
CATCH_UP_SECONDS_MAX = 300
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
    """Yield the p99 of a steady load, once alone, and once while a table catches up with an older topic."""
    with node() as server:
        create(server, BACKLOG, PARTITIONS)
        produce(server, BACKLOG, records)
        create(server, STEADY, 1)
        load = Child("load", {"bootstrap": server.bootstrap, "topic": STEADY, "partitions": 1, "rate": RATE})
        try:
            load.begin()
            time.sleep(LOAD_SECONDS)
            quiet_ns = time.perf_counter_ns()
            time.sleep(QUIET_SECONDS)
            begin_ns, used = time.perf_counter_ns(), table_cpu(server)
            set_configs(server, BACKLOG, TABLE)
            wait_until_it_has(server, BACKLOG, records)
            end_ns, used = time.perf_counter_ns(), table_cpu(server) - used
            load.stop()
            found = load.figures()
        finally:
            load.kill()
    quiet, beside = delays(found, quiet_ns, begin_ns), delays(found, begin_ns, end_ns)
    assert quiet is not None and beside is not None
    gigabytes, seconds = records * VALUE_BYTES / 1e9, (end_ns - begin_ns) / 1e9
    what = f"end to end at {RATE} records/s, p99"
    yield Figure(f"{what}, quiet", quiet.p99, "ms", note=f"p50 {quiet.p50:.2f}, most {quiet.longest:.1f} ms")
    note = f"p50 {beside.p50:.2f}, most {beside.longest:.1f} ms"
    yield Figure(
        f"{what}, while a table catches up {gigabytes:g} GB", beside.p99, "ms", at_most=2 * quiet.p99, note=note
    )
    note = f"{used / gigabytes:.1f} CPU s/GB of the process beside the node"
    yield Figure("the same: caught up in", seconds / gigabytes, "s/GB", at_most=30, note=note)


def full_speed(records: int) -> Iterator[Figure]:
    """Yield the rates of a producer without a limit: to topics without and with a table, in turns."""
    rates: dict[str, list[float]] = {"plain": [], "table": []}
    cpu: dict[str, list[float]] = {"plain": [], "table": []}
    behind = list[float]()
    gigabytes = records * VALUE_BYTES / 1e9
    with node() as server:
        for turn in range(TURNS):
            for name in rates:
                topic = f"{name}-{turn}"
                create(server, topic, PARTITIONS, TABLE if name == "table" else {})
                used = cpu_seconds(server.pids)
                rates[name].append(produce(server, topic, records))
                cpu[name].append((cpu_seconds(server.pids) - used) / gigabytes)
                if name == "table":
                    began = time.monotonic()
                    wait_until_it_has(server, topic, records)
                    behind.append(time.monotonic() - began)
                delete(server, topic)
    plain, table = statistics.median(rates["plain"]), statistics.median(rates["table"])
    note = f"{statistics.median(cpu['plain']):.2f} CPU s/GB of the node; of {TURNS} turns of {gigabytes:g} GB"
    yield Figure("produce 1 KB at full speed, without a table", plain, "MB/s", note=note)
    note = (
        f"{statistics.median(cpu['table']):.2f} CPU s/GB of the node; {100 * table / plain:.0f} % of the rate without; the table has all of it "
        f"{statistics.median(behind):.1f} s later"
    )
    yield Figure("the same with a table", table, "MB/s", at_least=0.85 * plain, note=note)


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


def table_cpu(server: Server) -> float:
    """Return the CPU seconds of the node's children, of which only the process of tables works here."""
    return sum(tree_cpu_seconds(pid) for pid in server.pids) - cpu_seconds(server.pids)
