"""What is measured, and the goals: one row a load. Ratios are ours to Kafka's."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, TypeAlias

#: The figures of one run of a load; of many runs, by row and server.
Figures: TypeAlias = dict[str, float]
Samples: TypeAlias = dict[str, dict[str, list[Figures]]]


@dataclass(frozen=True)
class Row:
    """One load: what runs, which figure is compared, and the goals (None where none is set)."""

    name: str
    load: str
    options: dict[str, Any]
    figure: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    cpu_per: str | None = None  # "GB" or "request"; of all nodes together
    cpu_at_most: float | None = None


PRODUCE = {"partitions": 6, "count": 500_000, "size": 1000}
SMALL = {"partitions": 6, "size": 100, "count": 2_000_000}
SINGLE = {"partitions": 1, "size": 1000, "count": 300_000, "batch": 16384, "linger_ms": 0}
ONE, MANY = {"partitions": 1, "connections": 1, "seconds": 5}, {"partitions": 8, "connections": 64, "seconds": 5}
STEADY = {"partitions": 1, "rate": 500, "seconds": 10}
#: Acknowledged by all of three replicas, of which two must be in sync.
REPLICATED = {"replication": 3, "configs": {"min.insync.replicas": "2"}}
PRODUCE_3 = {**REPLICATED, "partitions": 6, "count": 200_000, "size": 1000}
TRANSACTIONS = {**REPLICATED, "partitions": 3, "seconds": 10}
MANY_3 = {**REPLICATED, "partitions": 6, "connections": 32, "seconds": 5}

ROWS: dict[int, list[Row]] = {
    1: [
        Row("produce 1 KB, 6 partitions, 64 KB batches", "produce", PRODUCE, "mb_per_s", "MB/s", 1.0, None, "GB", 0.5),
        Row("consume 1 KB", "consume", PRODUCE, "mb_per_s", "MB/s", 1.0, None, "GB", 0.6),
        Row("produce 100 B, 6 partitions, 64 KB batches", "produce", SMALL, "records_per_s", "rec/s", 1.0, None, "GB", 0.7),
        Row("produce 1 KB, 1 partition, 16 KB batches, linger 0", "produce", SINGLE, "mb_per_s", "MB/s", 1.0, None, "GB"),
        Row("one-record Produce, 1 connection", "one_record", ONE, "per_s", "req/s", 2.0, None, "request"),
        Row("one-record Produce, 64 connections", "one_record", MANY, "per_s", "req/s", 1.0, None, "request", 0.8),
        Row("end to end at 500 msg/s, p99", "end_to_end", STEADY, "p99_ms", "ms", None, 0.5),
        Row("produce 1 KB over TLS", "produce", {**PRODUCE, "tls": 1}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.7),
        Row("consume 1 KB over TLS", "consume", {**PRODUCE, "tls": 1}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.7),
    ],
    3: [
        Row("produce 1 KB, 6 partitions, 64 KB batches", "produce", PRODUCE_3, "mb_per_s", "MB/s", 1.0, None, "GB", 0.6),
        Row("one-record Produce, 1 connection", "one_record", {**REPLICATED, **ONE}, "per_s", "req/s", 2.0, None, "request"),
        Row("one-record Produce, 32 connections", "one_record", MANY_3, "per_s", "req/s", 1.0, None, "request"),
        Row("transactions over 3 partitions, 1 producer", "transactions", TRANSACTIONS, "per_s", "txn/s", None, None, "request"),
        Row("end to end at 500 msg/s, p50", "end_to_end", {**REPLICATED, **STEADY}, "p50_ms", "ms"),
        Row("end to end at 500 msg/s, p99", "end_to_end", {**REPLICATED, **STEADY}, "p99_ms", "ms", None, 0.5),
    ],
}  # fmt: skip
UNITS = {"GB": "s/GB", "request": "us/req"}


def medians(samples: Samples) -> dict[str, dict[str, Figures]]:
    return {
        name: {
            server: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            for server, runs in by_server.items()
            if runs
        }
        for name, by_server in samples.items()
    }


def verdict(ratio: float, at_least: float | None, at_most: float | None) -> str:
    if at_least is not None:
        return f"{ratio:.2f}x (goal >= {at_least}x{'' if ratio >= at_least else ', MISSED'})"
    if at_most is not None:
        return f"{ratio:.2f}x (goal <= {at_most}x{'' if ratio <= at_most else ', MISSED'})"
    return f"{ratio:.2f}x"


def table(rows: list[Row], samples: Samples) -> list[str]:
    lines = [
        "| load | Kafka | Ottla | ratio | Kafka CPU | Ottla CPU | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    by_name = medians(samples)
    for row in rows:
        ours, theirs = by_name[row.name]["ottla"], by_name[row.name].get("kafka")
        cells = [_figure(theirs, row), _figure(ours, row), "", _cpu(theirs, row), _cpu(ours, row), ""]
        if theirs is not None:
            cells[2] = verdict(ours[row.figure] / theirs[row.figure], row.at_least, row.at_most)
            if row.cpu_per is not None:
                cells[5] = verdict(ours["cpu"] / theirs["cpu"], None, row.cpu_at_most)
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return lines


def _figure(figures: Figures | None, row: Row) -> str:
    return "" if figures is None else f"{figures[row.figure]:,.2f} {row.unit}"


def _cpu(figures: Figures | None, row: Row) -> str:
    return "" if figures is None or row.cpu_per is None else f"{figures['cpu']:.2f} {UNITS[row.cpu_per]}"
