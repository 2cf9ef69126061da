"""`make bench`: every load on both servers in turns, medians, and how the goals are met. Needs the machine to itself."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.rows import NULL_CONNECTIONS, ROWS, Figures, Row, Samples, quick, table
from benchmarks.servers import (
    NullServer,
    Server,
    kafka_first_ack_seconds,
    ottla_first_ack_seconds,
    start_kafka,
    start_ottla,
)
from benchmarks.usage import MachineTime, anonymous_megabytes, cpu_seconds, private_megabytes
from tools.apache_kafka import missing

#: From starting the processes on empty directories to the first acknowledged Produce.
START_SECONDS_GOAL = {1: 0.6, 3: 2.0}
PRIVATE_MEGABYTES_GOAL = 60
#: A JVM compiles what it has run often: three of them on two cores do a tenth of their work in their first half minute. With
#: `--quick` (True) the warm-up ends early, and the figures favour us.
WARM_SECONDS_MAX = {False: 180, True: 20}
#: A rate stands still when a round does not improve it by more than this.
STILL = 1.05
#: Of each run against the null server.
NULL_SECONDS = 1.5


def run_load(name: str, options: dict[str, Any]) -> Figures:
    command = [sys.executable, "-m", "benchmarks.loads", name, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"load {name} failed: {done.stderr[-800:]}")
    result: Figures = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(server: Server, row: Row, round_: int) -> Figures:
    """One run of one load on one server: its figures, the server's CPU per GB or per request in `cpu`, and the time stolen."""
    written = row.reads or row.name
    topic = f"bench-{re.sub(r'[^a-z0-9]+', '-', written.lower())}-{round_}"
    options = {**row.options, "bootstrap": server.bootstrap, "topic": topic}
    if row.options.get("tls"):
        options |= {"bootstrap": server.tls.bootstrap, "ca": server.tls.ca_file}
    if not row.reads:
        run_load("create", options)
    clock, before = MachineTime.now(), cpu_seconds(server.pids)
    result = run_load(row.load, options)
    used = cpu_seconds(server.pids) - before
    result["stolen"] = clock.stolen_percent()
    if row.cpu_per == "GB":
        result["cpu"] = used / result["bytes"] * 1e9
    elif row.cpu_per == "request":
        result["cpu"] = used / result["requests"] * 1e6
    if result["errors"]:
        print(f"  ! {server.name}: {result['errors']:.0f} errors in {row.name}", file=sys.stderr)
    return result


def measure_null(null: NullServer, row: Row) -> Figures:
    """The null server with the row's connections, or many: what a request costs on this machine in this minute."""
    connections = row.options["connections"] if row.load == "one_record" else NULL_CONNECTIONS
    clock, before = MachineTime.now(), cpu_seconds([null.pid])
    result = run_load("null", {"port": null.port, "connections": connections, "seconds": NULL_SECONDS})
    result["cpu"] = (cpu_seconds([null.pid]) - before) / result["requests"] * 1e6
    result["stolen"] = clock.stolen_percent()
    return result


def warm_up(rows: list[Row], server: Server, seconds_max: float) -> None:
    """The loads themselves, again and again, until no rate is better than the best before it. Nothing is counted."""
    loads = {row.run: row for row in rows if not row.load.startswith("java")}
    best = dict.fromkeys(loads, 0.0)
    until = time.monotonic() + seconds_max
    for round_ in itertools.count(1):
        still = True
        for run, row in loads.items():
            rate = measure(server, row, -round_).get(row.figure, 0.0)
            if row.at_most is None and rate > best[run] * STILL:
                still = False
            best[run] = max(best[run], rate)
            if time.monotonic() > until:
                return
        if still:
            return


def sample(rows: list[Row], servers: list[Server], runs: int, warm_seconds: float) -> Samples:
    """The servers take turns so that a drift of the machine meets both."""
    samples: Samples = {row.name: {server.name: [] for server in servers} | {"null": []} for row in rows}
    for server in servers:
        warm_up(rows, server, warm_seconds)
    with NullServer() as null:
        for round_ in range(runs):
            shared: dict[str, Figures] = {}
            for row in rows:
                for server in servers:
                    run = f"{server.name} {row.run}"
                    result = shared[run] = shared[run] if run in shared else measure(server, row, round_)
                    samples[row.name][server.name].append(result)
                    report(f"[{round_}] {row.name} | {server.name}", result)
                samples[row.name]["null"].append(measure_null(null, row))
                report(f"[{round_}] {row.name} | null", samples[row.name]["null"][-1])
    return samples


def report(what: str, result: Figures) -> None:
    figures = "  ".join(f"{k}={v:,.2f}" for k, v in result.items() if k not in ("bytes", "requests", "errors"))
    print(f"  {what}: {figures}", file=sys.stderr, flush=True)


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
        f"  Kafka: format {statistics.median(f for f, _ in theirs):.2f} s, then {statistics.median(s for _, s in theirs):.2f} s",
    ]


def idle(servers: list[Server]) -> list[str]:
    time.sleep(3)
    lines = []
    for server in servers:
        private = [private_megabytes([pid]) for pid in server.pids]
        heap = [anonymous_megabytes([pid]) for pid in server.pids]
        each = ", ".join(f"{mb:.0f}" for mb in private)
        lines.append(f"idle memory, {server.name}: private {each} MB, of it heap {max(heap):.0f} MB at most")
        # Mapped log pages are page cache, which the kernel takes back as it does a JVM's: the goal is for what is the process's own.
        if server.name == "ottla" and max(heap) > PRIVATE_MEGABYTES_GOAL:
            lines[-1] += f" (goal <= {PRIVATE_MEGABYTES_GOAL} MB, MISSED)"
    return lines


def bench(nodes: int, args: argparse.Namespace, with_kafka: bool) -> list[str]:
    """One table: so many nodes of Ottla against as many of Kafka."""
    rows = [row for row in ROWS[nodes] if args.only in row.name]
    if args.quick:
        rows = [quick(row) for row in rows if not row.load.startswith("java")]
    needed = {row.reads for row in rows} - {row.name for row in rows} - {""}
    assert not needed, f"these rows write what others read: {needed}"
    lines = [] if args.no_start or args.quick else starts(nodes, with_kafka, 5 if nodes == 1 else 3)
    servers: list[Server] = []
    try:
        servers.append(start_ottla(nodes))
        if with_kafka:
            servers.append(start_kafka(nodes))
        lines += idle(servers)
        found = table(rows, sample(rows, servers, 1 if args.quick else args.runs, WARM_SECONDS_MAX[args.quick]))
        lines += [line.replace("idle", "after the loads,", 1) for line in idle(servers)]
    finally:
        for server in servers:
            server.stop()
    return [f"## {nodes} {'node' if nodes == 1 else 'nodes'}", "", *found, "", *lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--nodes", type=int, action="append", choices=sorted(ROWS), help="default: one, then three")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="one short run of each row, in four minutes")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-start", action="store_true", help="leave out the start-up figures")
    parser.add_argument("--out", type=Path, default=Path(".bench/table.md"))
    args = parser.parse_args()
    reason = "left out by --no-kafka" if args.no_kafka else missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    text = "\n".join(line for nodes in args.nodes or sorted(ROWS) for line in bench(nodes, args, reason is None))
    print(text)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(text)


if __name__ == "__main__":
    main()
