"""What is measured, and the goals: one row a load. Ratios are ours to Kafka's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    #: The row whose topic this one reads.
    reads: str = ""
    #: Of our CPU to that of the null server.
    null_at_most: float | None = None

    @property
    def run(self) -> str:
        """Rows may look at two figures of one run."""
        return f"{self.load} {self.options}"

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def null_module(self) -> str:
        """What takes this load in place of a server: its figure is the ceiling of the client on this machine. "": nothing does."""
        return "" if self.options.get("tls") else NULL_MODULES.get(self.load, "")


PRODUCE = {"partitions": 6, "count": 500_000, "size": 1000}
SMALL = {"partitions": 6, "size": 100, "count": 2_000_000}
SINGLE = {"partitions": 1, "size": 1000, "count": 300_000, "batch": 16384, "linger_ms": 0}
TEXT = {**PRODUCE, "compression": "zstd"}
JAVA = {"partitions": 6, "count": 1_000_000, "size": 1000}
ONE, MANY = {"partitions": 1, "connections": 1, "seconds": 5}, {"partitions": 8, "connections": 64, "seconds": 5}
FAN_OUT = {"connections": 20, "seconds": 5}
STEADY = {"partitions": 1, "rate": 500, "seconds": 10}
#: Acknowledged by all of three replicas, of which two must be in sync.
REPLICATED = {"replication": 3, "configs": {"min.insync.replicas": "2"}}
PRODUCE_3 = {**REPLICATED, "partitions": 6, "count": 200_000, "size": 1000}
TRANSACTIONS = {**REPLICATED, "partitions": 3, "seconds": 10}
MANY_3 = {**REPLICATED, "partitions": 6, "connections": 32, "seconds": 5}
NULL_MODULES = {"one_record": "null_server", "produce": "null_broker", "end_to_end": "null_broker"}

WRITTEN, WRITTEN_TLS = "produce 1 KB, 6 partitions, 64 KB batches", "produce 1 KB over TLS"
WRITTEN_ONE, WRITTEN_TEXT = "produce 1 KB, 1 partition, 16 KB batches, linger 0", "produce 1 KB of text, zstd"
WRITTEN_JAVA = "kafka-producer-perf-test, 1 KB"
ROWS: dict[int, list[Row]] = {
    1: [
        Row(WRITTEN, "produce", PRODUCE, "mb_per_s", "MB/s", 1.5, None, "GB", 0.5),
        Row("consume 1 KB", "consume", PRODUCE, "mb_per_s", "MB/s", 1.2, None, "GB", 0.4, reads=WRITTEN),
        Row("produce 100 B, 6 partitions, 64 KB batches", "produce", SMALL, "records_per_s", "rec/s", 1.3, None, "GB", 0.5),
        Row(WRITTEN_ONE, "produce", SINGLE, "mb_per_s", "MB/s", 2.0, None, "GB"),
        Row("20 consumers of one partition, 1 KB", "fan_out", FAN_OUT, "mb_per_s", "MB/s", 1.0, None, "GB", 0.6, reads=WRITTEN_ONE),
        Row(WRITTEN_TEXT, "produce", TEXT, "mb_per_s", "MB/s", None, None, "GB"),
        Row("consume 1 KB of text, zstd", "consume", TEXT, "mb_per_s", "MB/s", None, None, "GB", reads=WRITTEN_TEXT),
        Row("one-record Produce, 1 connection", "one_record", ONE, "per_s", "req/s", 1.3, None, "request", 0.5),
        Row("one-record Produce, 64 connections", "one_record", MANY, "per_s", "req/s", 1.3, None, "request", 0.7, null_at_most=1.5),
        Row("end to end at 500 msg/s, p50", "end_to_end", STEADY, "p50_ms", "ms"),
        Row("end to end at 500 msg/s, p99", "end_to_end", STEADY, "p99_ms", "ms", None, 0.25),
        Row(WRITTEN_TLS, "produce", {**PRODUCE, "tls": 1}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.7),
        Row("consume 1 KB over TLS", "consume", {**PRODUCE, "tls": 1}, "mb_per_s", "MB/s", 1.0, None, "GB", 0.7, reads=WRITTEN_TLS),
        Row(WRITTEN_JAVA, "java_produce", JAVA, "mb_per_s", "MB/s", None, None, "GB"),
        Row("kafka-consumer-perf-test, 1 KB", "java_consume", JAVA, "mb_per_s", "MB/s", None, None, "GB", reads=WRITTEN_JAVA),
    ],
    3: [
        Row(WRITTEN, "produce", PRODUCE_3, "mb_per_s", "MB/s", 1.0, None, "GB", 0.6),
        Row("one-record Produce, 1 connection", "one_record", {**REPLICATED, **ONE}, "per_s", "req/s", 2.0, None, "request"),
        Row("one-record Produce, 32 connections", "one_record", MANY_3, "per_s", "req/s", 1.5, None, "request", 0.7),
        Row("transactions over 3 partitions, 1 producer", "transactions", TRANSACTIONS, "per_s", "txn/s", None, None, "request"),
        Row("end to end at 500 msg/s, p50", "end_to_end", {**REPLICATED, **STEADY}, "p50_ms", "ms"),
        Row("end to end at 500 msg/s, p99", "end_to_end", {**REPLICATED, **STEADY}, "p99_ms", "ms", None, 0.5),
    ],
}  # fmt: skip
#: The part of records and seconds that `--quick` measures.
QUICK = 0.3


def quick(row: Row) -> Row:
    """The same row in less time; the JVM of a Java client would still be starting."""
    less = {key: type(value)(value * QUICK) or 1 for key, value in row.options.items() if key in ("count", "seconds")}
    return replace(row, options=row.options | less)


#: In a run with more of it than this the hypervisor decides about the figures.
STOLEN_PERCENT_MAX = 10
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
    """One line a row. What is measured without a server and the stolen time are of the same minutes."""
    heads = (
        "load",
        "Kafka",
        "Ottla",
        "ratio",
        "Kafka CPU",
        "Ottla CPU",
        "ratio",
        "client's cores",
        "without a server",
        "turns, stolen",
    )
    lines = [_line(heads), _line(["---"] * len(heads))]
    by_name = medians(samples)
    for row in rows:
        ours, theirs, null = (by_name[row.name].get(server) for server in ("ottla", "kafka", "null"))
        assert ours is not None
        ratio = cpu_ratio = ""
        if theirs is not None:
            ratio = verdict(ours[row.figure] / theirs[row.figure], row.at_least, row.at_most)
            if row.cpu_per is not None:
                cpu_ratio = verdict(ours["cpu"] / theirs["cpu"], None, row.cpu_at_most)
        clients = "; ".join(f"{each['client']:.2f}" for each in (theirs, ours) if each is not None)
        cells = [
            _figure(theirs, row),
            _figure(ours, row),
            ratio,
            _cpu(theirs, row),
            _cpu(ours, row),
            cpu_ratio,
            clients,
        ]
        lines.append(_line([row.name, *cells, _without(null, ours, row), _turns(samples[row.name])]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _without(null: Figures | None, ours: Figures, row: Row) -> str:
    """For raw sockets the null server's CPU; for librdkafka how fast its client is where nothing is done."""
    if null is None:
        return ""
    if row.load == "one_record":
        return f"{_cpu(null, row)}, ours {verdict(ours['cpu'] / null['cpu'], None, row.null_at_most)}"
    return f"{_figure(null, row)} ({null['client']:.2f} cores), ours {ours[row.figure] / null[row.figure]:.2f}x"


def _turns(by_server: dict[str, list[Figures]]) -> str:
    """How many runs of a server, and the worst stolen time of them: above STOLEN_PERCENT_MAX they say little about the servers."""
    worst = max(run["stolen"] for runs in by_server.values() for run in runs)
    return f"{len(by_server['ottla'])}; {worst:.0f} %{', TOO MUCH' if worst > STOLEN_PERCENT_MAX else ''}"


def _figure(figures: Figures | None, row: Row) -> str:
    return "" if figures is None else f"{_number(figures[row.figure])} {row.unit}"


def _cpu(figures: Figures | None, row: Row) -> str:
    return "" if figures is None or row.cpu_per is None else f"{figures['cpu']:.2f} {UNITS[row.cpu_per]}"


def _number(value: float) -> str:
    """Three digits say what one more turn would say again."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
