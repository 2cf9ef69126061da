"""The measurements of `make bench`, and the goals: one row for each load. Ratios are Ottla's figure to Kafka's; tables.py
prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

#: The figures of one run of a load; of many runs, by row and server.
Figures: TypeAlias = dict[str, float]
Samples: TypeAlias = dict[str, dict[str, list[Figures]]]


@dataclass(frozen=True)
class Row:
    """One load: the benchmark that runs, the figure that is compared, and the goals (None where none is set)."""

    name: str
    load: str
    options: dict[str, Any]
    figure: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    cpu_per: str | None = None  # the unit: "GB", "request" or "transaction"; the CPU of all nodes counts
    cpu_at_most: float | None = None
    #: The row whose topic this row reads.
    reads: str = ""
    #: The goal for Ottla's CPU relative to that of the null server.
    null_at_most: float | None = None

    @property
    def run(self) -> str:
        """Return the name of the run: several rows may show figures of one run."""
        return f"{self.load} {self.options}"

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def is_raw(self) -> bool:
        """Return True if the client is raw sockets: then the CPU of a server that does nothing is compared, not the client's
        rate.
        """
        return self.load in ("one_record", "fan_out")

    @property
    def has_kfake(self) -> bool:
        """Return True if a broker in memory takes the load too: one-record Produces of one node, and transactions, for which it is the rate that
        the client allows.
        """
        return self.load == "transactions" or (self.load == "one_record" and "replication" not in self.options)

    @property
    def null_module(self) -> str:
        """Return the module that takes this load in place of a server, whose figure is the ceiling of the client on this
        machine; "" for none.
        """
        return "" if self.options.get("tls") else NULL_MODULES.get(self.load, "")


PRODUCE = {"partitions": 6, "count": 500_000, "size": 1000}
SMALL = {"partitions": 6, "size": 100, "count": 2_000_000}
SINGLE = {"partitions": 1, "size": 1000, "count": 300_000, "batch": 16384, "linger_ms": 0}
TEXT = {**PRODUCE, "compression": "zstd"}
JAVA = {"partitions": 6, "count": 1_000_000, "size": 1000}
ONE, MANY = {"partitions": 1, "connections": 1, "seconds": 5}, {"partitions": 8, "connections": 64, "seconds": 5}
FAN_OUT = {"connections": 20, "seconds": 5}
STEADY = {"partitions": 1, "rate": 500, "seconds": 10}
#: Settings of topics whose records are acknowledged by all of three replicas, of which two must be in sync.
REPLICATED = {"replication": 3, "configs": {"min.insync.replicas": "2"}}
PRODUCE_3 = {**REPLICATED, "partitions": 6, "count": 200_000, "size": 1000}
TRANSACTIONS = {**REPLICATED, "partitions": 3, "seconds": 10}
MANY_3 = {**REPLICATED, "partitions": 6, "connections": 32, "seconds": 5}
NULL_MODULES = {
    "one_record": "null_server",
    "fan_out": "null_fetch",
    "produce": "null_broker",
    "consume": "null_backlog",
    "end_to_end": "null_broker",
}

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
        Row("transactions over 3 partitions, 1 producer", "transactions", TRANSACTIONS, "per_s", "txn/s", None, None, "transaction"),
        Row("end to end at 500 msg/s, p50", "end_to_end", {**REPLICATED, **STEADY}, "p50_ms", "ms"),
        Row("end to end at 500 msg/s, p99", "end_to_end", {**REPLICATED, **STEADY}, "p99_ms", "ms", None, 0.5),
    ],
}  # fmt: skip
#: The part of the records and seconds that `--quick` measures.
QUICK = 0.3


def quick(row: Row) -> Row:
    """Return the same row in less time. A run with `--quick` has no Java clients, whose JVM would still be starting."""
    less = {key: type(value)(value * QUICK) or 1 for key, value in row.options.items() if key in ("count", "seconds")}
    return replace(row, options=row.options | less)
