"""`make bench`: every load on both servers in turns, medians, and how the goals are met. Needs the machine to itself."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers import Server, kafka_first_ack_seconds, ottla_first_ack_seconds, start_kafka, start_ottla
from benchmarks.usage import anonymous_megabytes, cpu_seconds, private_megabytes
from tools.apache_kafka import missing


@dataclass(frozen=True)
class Row:
    """One load: what runs, which figure is compared, and the goals (ratio ours/Kafka; None where none is set)."""

    name: str
    load: str
    options: dict[str, Any]
    figure: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    cpu_per: str | None = None  # "GB" or "request"
    cpu_at_most: float | None = None


PRODUCE = {"partitions": 6, "count": 500_000}
SMALL = {"partitions": 6, "size": 100, "count": 2_000_000}
SINGLE = {"partitions": 1, "size": 1000, "count": 300_000, "batch": 16384, "linger_ms": 0}
ONE, MANY = {"partitions": 1, "connections": 1, "seconds": 5}, {"partitions": 8, "connections": 64, "seconds": 5}
STEADY = {"partitions": 1, "rate": 500, "seconds": 10}
ROWS = [
    Row("produce 1 KB, 6 partitions, 64 KB batches", "produce", {**PRODUCE, "size": 1000}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.5),
    Row("consume 1 KB", "consume", {**PRODUCE, "size": 1000}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.6),
    Row("produce 100 B, 6 partitions, 64 KB batches", "produce", SMALL, "records_per_s", "rec/s", 1.0, None, "GB", 0.7),
    Row("produce 1 KB, 1 partition, 16 KB batches, linger 0", "produce", SINGLE, "mb_per_s", "MB/s", 1.0, None, "GB"),
    Row("one-record Produce, 1 connection", "one_record", ONE, "per_s", "req/s", 2.0, None, "request"),
    Row("one-record Produce, 64 connections", "one_record", MANY, "per_s", "req/s", 1.0, None, "request", 0.8),
    Row("end to end at 500 msg/s, p99", "end_to_end", STEADY, "p99_ms", "ms", None, 0.5),
]  # fmt: skip


def run_load(name: str, options: dict[str, Any]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.loads", name, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"load {name} failed: {done.stderr[-800:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(server: Server, row: Row, round_: int) -> dict[str, float]:
    """One run of one load on one server: its figures, and the server's CPU per GB or per request in `cpu`."""
    # A consume run reads what the produce run of the same shape wrote; every other run gets a topic of its own.
    kind = row.load.replace("consume", "produce")
    shape = "-".join(str(row.options.get(key, 0)) for key in ("size", "partitions", "batch", "connections"))
    topic = f"bench-{kind}-{shape}-{round_}"
    options = {**row.options, "bootstrap": server.bootstrap, "topic": topic}
    if row.load != "consume":
        run_load("create", options)
    before = cpu_seconds(server.pids)
    result = run_load(row.load, options)
    used = cpu_seconds(server.pids) - before
    if row.cpu_per == "GB":
        result["cpu"] = used / result["bytes"] * 1e9
    elif row.cpu_per == "request":
        result["cpu"] = used / result["requests"] * 1e6
    if result["errors"]:
        print(f"  ! {server.name}: {result['errors']:.0f} errors in {row.name}", file=sys.stderr)
    return result


def compare(rows: list[Row], servers: list[Server], runs: int) -> dict[str, dict[str, dict[str, float]]]:
    """Medians by row and server; the servers take turns so that a drift of the machine meets both."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {
        row.name: {server.name: [] for server in servers} for row in rows
    }
    for round_ in range(runs + 1):  # round 0 warms both up and is not counted
        for row in rows:
            for server in servers:
                result = measure(server, row, round_)
                if round_:
                    samples[row.name][server.name].append(result)
                figures = "  ".join(
                    f"{k}={v:,.2f}" for k, v in result.items() if k not in ("bytes", "requests", "errors")
                )
                print(f"  [{round_}] {row.name} | {server.name}: {figures}", file=sys.stderr, flush=True)
    return {
        name: {
            server: {key: statistics.median(r[key] for r in results) for key in results[0]}
            for server, results in by_server.items()
            if results
        }
        for name, by_server in samples.items()
    }


def verdict(ratio: float, at_least: float | None, at_most: float | None) -> str:
    if at_least is not None:
        return f"{ratio:.2f}x (goal >= {at_least}x{'' if ratio >= at_least else ', MISSED'})"
    if at_most is not None:
        return f"{ratio:.2f}x (goal <= {at_most}x{'' if ratio <= at_most else ', MISSED'})"
    return f"{ratio:.2f}x"


def table(rows: list[Row], medians: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    lines = [
        "| load | Kafka | Ottla | ratio | Kafka CPU | Ottla CPU | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        by_server = medians[row.name]
        ours, theirs = by_server["ottla"], by_server.get("kafka")
        unit = {"GB": "s/GB", "request": "us/req", None: ""}[row.cpu_per]
        figure = f"{ours[row.figure]:,.2f} {row.unit}"
        cpu = f"{ours['cpu']:.2f} {unit}" if row.cpu_per else ""
        if theirs is None:
            lines.append(f"| {row.name} | | {figure} | | | {cpu} | |")
            continue
        speed = verdict(ours[row.figure] / theirs[row.figure], row.at_least, row.at_most)
        their_figure = f"{theirs[row.figure]:,.2f} {row.unit}"
        their_cpu = f"{theirs['cpu']:.2f} {unit}" if row.cpu_per else ""
        cpu_ratio = verdict(ours["cpu"] / theirs["cpu"], None, row.cpu_at_most) if row.cpu_per else ""
        lines.append(f"| {row.name} | {their_figure} | {figure} | {speed} | {their_cpu} | {cpu} | {cpu_ratio} |")
    return lines


def starts(with_kafka: bool, runs: int) -> list[str]:
    ours = [ottla_first_ack_seconds() for _ in range(runs)]
    line = f"start to first acknowledged produce: Ottla median {statistics.median(ours):.2f} s (goal <= 0.6 s), of {[round(s, 2) for s in ours]}"
    if not with_kafka:
        return [line]
    theirs = [kafka_first_ack_seconds() for _ in range(min(runs, 3))]
    return [
        line,
        f"  Kafka: format {statistics.median(f for f, _ in theirs):.2f} s, then {statistics.median(s for _, s in theirs):.2f} s",
    ]


def idle(servers: list[Server]) -> list[str]:
    time.sleep(3)
    return [
        f"idle memory, {s.name}: private {private_megabytes(s.pids):.0f} MB, of it heap {anonymous_megabytes(s.pids):.0f} MB"
        for s in servers
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-start", action="store_true", help="leave out the start-up figures")
    parser.add_argument("--out", type=Path, default=Path(".bench/single.md"))
    args = parser.parse_args()
    reason = "left out by --no-kafka" if args.no_kafka else missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    rows = [row for row in ROWS if args.only in row.name]
    lines = [] if args.no_start else starts(reason is None, 5)
    servers: list[Server] = []
    try:
        servers.append(start_ottla())
        if reason is None:
            servers.append(start_kafka())
        lines += idle(servers)
        lines = [*table(rows, compare(rows, servers, args.runs)), "", *lines]
    finally:
        for server in servers:
            server.stop()  # type: ignore[operator]
    text = "\n".join(lines)
    print(text)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
