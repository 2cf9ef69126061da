"""`make bench`: every load on both servers in turns, and tables for benchmarks/performance-log.md. Needs the machine to itself.

First the stock consumers with their default settings, then one node, three nodes, and Spark's source beside the connector; `--nodes`
leaves one of the tables. `make bench ARGS=steady` is another run: what happens to a load beside accidents (benchmarks/steady); and
`ARGS=tables` a third: what topics that are tables cost (benchmarks/topic_tables).
What happens is reported on standard error; standard output has the tables alone, and .bench/table-short.md those of docs/PERFORMANCE.md.
The other benchmarks are modules of their own
(benchmarks/performance-log.md, "What measures what").
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import builds, in_memory, machine, spark_source, stock
from benchmarks.rows import QUICK, ROWS, Row, quick
from benchmarks.servers import Server, kafka_first_ack_seconds, ottla_first_ack_seconds, start_kafka, start_ottla
from benchmarks.steady import driver as steady
from benchmarks.tables import short_table, table
from benchmarks.turns import WarmUp, sample, warm_up
from benchmarks.usage import MachineTime, anonymous_megabytes, private_megabytes
from tools.apache_kafka import missing

#: From starting the processes on empty directories to the first acknowledged Produce.
START_SECONDS_GOAL = {1: 0.6, 3: 2.0}
PRIVATE_MEGABYTES_GOAL = 60
#: A JVM compiles what it has run often: three of them on two cores do a tenth of their work in their first half minute.
WARM_SECONDS_MAX = {1: 180, 3: 400}
#: With `--quick` Kafka is warmed up as long as four minutes allow, and Ottla, which compiles nothing, is not.
QUICK_WARM_SECONDS = {1: 40, 3: 60}
STOCK_RECORDS = 1_200_000
#: Returns a whole table with its conditions, and a short one.
Part = Callable[[], tuple[list[str], list[str]]]
#: The name of Spark's rows for `--only`, and the megabytes of each topic.
SPARK, SPARK_MEGABYTES = "spark", 500


def starts(nodes: int, with_kafka: bool, runs: int) -> list[str]:
    ours = [ottla_first_ack_seconds(nodes) for _ in range(runs)]
    median, goal = statistics.median(ours), START_SECONDS_GOAL[nodes]
    missed = "" if median <= goal else ", MISSED"
    line = f"start to first acknowledged produce: Ottla median {median:.2f} s (goal <= {goal} s{missed}), of {[round(s, 2) for s in ours]}"
    if not with_kafka:
        return [line]
    theirs = [kafka_first_ack_seconds(nodes) for _ in range(min(runs, 3))]
    return [
        line,
        f"Kafka: format {statistics.median(f for f, _ in theirs):.2f} s, then {statistics.median(s for _, s in theirs):.2f} s",
    ]


def idle(servers: list[Server]) -> list[str]:
    time.sleep(3)
    lines = []
    for server in servers:
        private = [private_megabytes([pid]) for pid in server.pids]
        heap = [anonymous_megabytes([pid]) for pid in server.pids]
        each = ", ".join(f"{mb:.0f}" for mb in private)
        lines.append(f"idle memory, {server.name}: private {each} MB, of it heap {max(heap):.0f} MB at most")
        # The goal is for private memory: mapped log pages are page cache, which the kernel takes back as it does a JVM's.
        if server.name == "ottla" and max(heap) > PRIVATE_MEGABYTES_GOAL:
            lines[-1] += f" (goal <= {PRIVATE_MEGABYTES_GOAL} MB, MISSED)"
    return lines


def bench(nodes: int, args: argparse.Namespace, with_kafka: bool) -> tuple[list[str], list[str]]:
    """Run all loads on a cluster of this number of nodes, of Ottla and of Kafka; return the table and its short form."""
    named = {row.name for row in ROWS[nodes] if args.only in row.name}
    named |= {row.reads for row in ROWS[nodes] if row.name in named}
    rows = [row for row in ROWS[nodes] if row.name in named]
    if not rows:
        return [], []
    if args.quick:
        rows = [quick(row) for row in rows if not row.load.startswith("java")]
    lines = [] if args.no_start or args.quick else starts(nodes, with_kafka, 5 if nodes == 1 else 3)
    clock, runs = MachineTime.now(), 1 if args.quick else args.runs
    servers: list[Server] = []
    try:
        servers.append(start_ottla(nodes))
        if with_kafka:
            servers.append(start_kafka(nodes))
        lines += idle(servers)
        warm = {server.name: warm_up_of(server, [quick(row) for row in rows], nodes, args.quick) for server in servers}
        samples = sample(rows, servers, runs, with_kfake=in_memory.missing() is None)
        if not args.quick:
            lines += [line.replace("idle", "after the loads,", 1) for line in idle(servers)]
    finally:
        for server in servers:
            server.stop()
    name = f"{nodes} {'node' if nodes == 1 else 'nodes'}"
    title = [f"## {name}", "", conditions(nodes, runs, args.quick, warm, clock), ""]
    whole = [*title, *table(rows, samples), "", *(f"- {line}" for line in lines), ""]
    return whole, [*title, *short_table(rows, samples), ""]


def stock_consumers(args: argparse.Namespace, with_kafka: bool) -> tuple[list[str], list[str]]:
    """Return the rows that a user meets before any setting is tuned, one node each."""
    if not any(args.only in name for name in stock.CLIENTS):
        return [], []
    records, runs = (round(STOCK_RECORDS * QUICK), 1) if args.quick else (STOCK_RECORDS, args.runs)
    lines = ["## Stock consumers", "", *stock.section(1, records, runs, args.only, with_kafka=with_kafka), ""]
    return lines, lines


def spark_readers(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Measure a batch that is read by Spark's own source and by the connector; return the rows, or the reason why there are
    none.
    """
    if args.quick or args.only not in SPARK:
        return [], []
    lines = ["## Spark", "", *spark_source.section(SPARK_MEGABYTES, args.runs, args.out.parent), ""]
    return lines, lines


def warm_up_of(server: Server, rows: list[Row], nodes: int, is_quick: bool) -> WarmUp:
    if is_quick:
        return warm_up(rows, server, QUICK_WARM_SECONDS[nodes]) if server.name == "kafka" else WarmUp()
    return warm_up(rows, server, WARM_SECONDS_MAX[nodes])


def conditions(nodes: int, runs: int, is_quick: bool, warm: dict[str, WarmUp], clock: MachineTime) -> str:
    """Return the conditions of the run, which a reader has to know before he believes the figures."""
    date = time.strftime("%Y-%m-%d %H:%M")
    turns = "one short turn of each load: figures to compare, not to quote" if is_quick else f"medians of {runs} turns"
    replicas = (
        "; replication factor 3, acks=all, min.insync.replicas=2, both clusters run at the same time"
        if nodes == 3
        else ""
    )
    warmed = "; ".join(f"{name.capitalize()}: {state}" for name, state in warm.items())
    return (
        f"{date}, {os.cpu_count()} cores for servers and clients, {turns}{replicas}. {warmed}. Stolen {clock.stolen_percent():.1f} % "
        f"of the whole time, load average {os.getloadavg()[0]:.1f} at the end."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, action="append", choices=sorted(ROWS), help="default: one, then three")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name holds this text, and those whose records they read")
    parser.add_argument(
        "--quick", action="store_true", help="one short run of each row but Java's, all in five minutes"
    )
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-start", action="store_true", help="leave out the start-up figures")
    parser.add_argument("--out", type=Path, default=Path(".bench/table.md"))
    args = parser.parse_args()
    reason = "left out by --no-kafka" if args.no_kafka else missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    parts: list[Part] = [partial(bench, nodes, args, reason is None) for nodes in args.nodes or sorted(ROWS)]
    if not args.nodes:
        parts = [partial(stock_consumers, args, reason is None), *parts, partial(spark_readers, args)]
        parts.append(partial(builds.bench, 1 if args.quick else 3))
    if reason := in_memory.missing():
        print(f"kfake is left out: {reason}", file=sys.stderr)
    args.out.parent.mkdir(exist_ok=True)
    whole, short = [*machine.conditions(), ""], list[str]()
    failed = False
    for part in parts:  # a run that is ended keeps the tables that it has
        try:
            lines, short_lines = part()
        except Exception as failure:
            traceback.print_exc(file=sys.stderr)
            lines = short_lines = [f"A table is missing: {type(failure).__name__}: {failure}", ""]
            failed = True
        whole, short = whole + lines, short + short_lines
        args.out.write_text("\n".join(whole))
        args.out.with_stem(f"{args.out.stem}-short").write_text("\n".join(short))
    print("\n".join(whole))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["steady"]:
        steady.main(sys.argv[2:])
    elif sys.argv[1:2] == ["tables"]:
        from benchmarks.topic_tables import driver as tables  # it needs the extra of this name

        tables.main(sys.argv[2:])
    elif sys.argv[1:2] == ["tiers"]:
        from benchmarks.tiers import driver as tiers  # it needs the extra of tables

        tiers.main(sys.argv[2:])
    else:
        main()
