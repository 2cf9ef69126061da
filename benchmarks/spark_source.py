"""`python -m benchmarks.spark_source`: a batch read by `format("ottla")` beside Spark's JVM source, of the same topics in one session.

Both read everything from one node of ours, in turns; the connector also from its segment files. The aggregate needs each value, and the
offsets, so that no source may pass over them. Before that each source reads the topic once without being measured: Java compiles then,
and Spark starts the Python processes that it reuses. CPU is that of Java and all Python processes of Spark together, and the server's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import loads
from benchmarks.usage import MachineTime, cpu_seconds, tree_cpu_seconds
from ottla.pipeline import config as configuration
from ottla.pipeline import session
from ottla.spark import register

PARTITIONS = 4
SIZES = (1024, 200)
#: The goal at 1 KB, in rows a second of the JVM source; smaller records have none.
GOAL, GOAL_SIZE = 1.0, 1024
JVM = "kafka"
COLUMNS, SEGMENTS, POLL = "columns", "segments", "kafka.max.poll.records"
#: The sources by name: the format, and the options besides the address and the topic. Without `columns` the connector makes all
#: columns, as the JVM source always does. The JVM source sends ListOffsets after each poll, of 500 records by default.
SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    JVM: ("kafka", ()),
    "kafka, max.poll.records=5000": ("kafka", (POLL,)),
    "ottla": ("ottla", ()),
    "ottla, segments://": ("ottla", (SEGMENTS,)),
    "ottla, columns=value,offset": ("ottla", (COLUMNS,)),
}


class Read(NamedTuple):
    """One batch read."""

    rows_per_s: float
    spark_cpu_us: float
    server_cpu_us: float


class Node(NamedTuple):
    """The node that the topics are on: its address, process id and log directory."""

    bootstrap: str
    pid: int
    log_dir: str


def read(spark: Any, node: Node, source: str, topic: str, size: int, count: int) -> Read:
    """Read all of the topic, and look at each value and offset."""
    form, given = SOURCES[source]
    options = {POLL: "5000", COLUMNS: "value,offset", SEGMENTS: f"segments://{node.log_dir}"}
    reader = spark.read.format(form).option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    reader = reader.options(**{name: options[name] for name in given})
    java = spark.sparkContext._gateway.proc.pid  # the Python processes of tasks are its children
    used, server_used = tree_cpu_seconds(java), cpu_seconds([node.pid])
    begin = time.perf_counter()
    row = reader.load().selectExpr("count(*) AS n", "sum(length(value)) AS size", "sum(offset) AS sum").collect()[0]
    took = time.perf_counter() - begin
    assert (row.n, row.size) == (count, count * size), f"{source} gave {row}"
    spark_us, server_us = tree_cpu_seconds(java) - used, cpu_seconds([node.pid]) - server_used
    return Read(count / took, spark_us / count * 1e6, server_us / count * 1e6)


def fill(node: Node, size: int, megabytes: int) -> tuple[str, int]:
    """Make a topic with records of this size. Return its name and the number of records."""
    count, topic = megabytes * 1_000_000 // size, f"bytes-{size}"
    shape = {"bootstrap": node.bootstrap, "topic": topic, "partitions": PARTITIONS, "size": size}
    loads.create(shape)
    made = loads.produce({**shape, "count": count})
    assert not made["errors"], made
    return topic, count


def run(node: Node, megabytes: int, runs: int) -> list[str]:
    """Fill, read in turns, and return the table."""
    topics = {size: fill(node, size, megabytes) for size in SIZES}
    spark = session.start(configuration.load(None, ("spark.driver_memory=2g", "pipeline.output=.bench/spark-source")))
    register(spark)
    found: dict[tuple[int, str], list[Read]] = {}
    try:
        for size, (topic, count) in topics.items():
            for number in range(runs + 1):
                for source in SOURCES:
                    each = read(spark, node, source, topic, size, count)
                    if number:  # the first is the warm-up
                        found.setdefault((size, source), []).append(each)
                    figures = "  ".join(f"{name}={value:,.2f}" for name, value in each._asdict().items())
                    print(f"  [{number}] {size} B | {source}: {figures}", file=sys.stderr, flush=True)
    finally:
        spark.stop()
    return table({key: Read(*map(statistics.median, zip(*rows, strict=True))) for key, rows in found.items()})


def table(found: dict[tuple[int, str], Read]) -> list[str]:
    """Return the rows of benchmarks/performance-log.md."""
    lines = [
        "| batch read | source | rows/s | ratio | Spark CPU | ratio | server CPU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (size, source), each in found.items():
        jvm = found[size, JVM]
        speed, cpu = each.rows_per_s / jvm.rows_per_s, each.spark_cpu_us / jvm.spark_cpu_us
        goal = (
            f" (goal >= {GOAL}x{'' if speed >= GOAL else ', MISSED'})"
            if size == GOAL_SIZE and source == "ottla"
            else ""
        )
        lines.append(
            f"| {size} B | {source} | {each.rows_per_s:,.0f} | {speed:.2f}x{goal} | {each.spark_cpu_us:.2f} us/row | {cpu:.2f}x |"
            f" {each.server_cpu_us:.2f} us/row |"
        )
    return lines


def section(megabytes: int, runs: int, folder_of: Path) -> list[str]:
    """Return the conditions and the table, or the reason why Spark cannot run."""
    if problem := session.missing():
        return [f"Spark is left out: {problem}"]
    clock, began = MachineTime.now(), time.strftime("%Y-%m-%d %H:%M")
    folder_of.mkdir(exist_ok=True)
    dev = [sys.executable, "-m", "ottla", "dev", "--nodes", "1", "--base-port", "0", "--json", "--dir"]
    with (
        tempfile.TemporaryDirectory(prefix="ottla-spark-source-", dir=folder_of) as folder,
        subprocess.Popen([*dev, folder], stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            (row,) = started["nodes"]
            (properties,) = Path(folder).absolute().rglob("meta.properties")
            lines = run(Node(started["bootstrap"], row["pid"], str(properties.parent)), megabytes, runs)
        finally:
            process.terminate()
    conditions = (
        f"{began}, {os.cpu_count()} cores for Spark (local[2]) and the server, medians of {runs} turns after a warm-up, "
        f"{megabytes} MB in {PARTITIONS} partitions; stolen {clock.stolen_percent():.1f} %, "
        f"load average {os.getloadavg()[1]:.1f} over the last five minutes."
    )
    return [conditions, "", *lines]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.spark_source", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="of values in each topic")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(".bench/spark-source.md"))
    args = parser.parse_args()
    text = "\n".join(section(args.megabytes, args.runs, args.out.parent))
    print(text)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
