"""Metrics of tables, and the rows of the page `/tables` of the admin listener.

Both have the topics of which this broker leads a partition, and only what it knows itself: the lag of the partitions that it leads, and, at the
leader of partition 0, commits and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.tables.table_driver import TableDriver
from ottla.broker.tables.topic_table import COMMITTING, TopicTable
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample

#: Name after ottla_table_, what it says, its value. Rows and commits are counted where they are committed.
COUNTS: tuple[tuple[str, str, Callable[[TopicTable], float]], ...] = (
    ("commits", "Commits to topics' tables that this broker has made", lambda table: table.commits),
    ("rows", "Rows in them", lambda table: table.rows),
    ("rejected_records", "Records in them that went to the table of rejected records", lambda table: table.rejected),
    ("left_out_records", "Rejected records that no table has (ottla.table.dlq=none)", lambda table: table.left_out),
    ("lost_offsets", "Offsets that logs had lost before the table took them", lambda table: table.lost),
    ("parted_offsets", "Offsets of which the table has rows that the log has lost", lambda table: table.parted),
    ("failures", "Attempts to bring a table further that have failed", lambda table: table.failures),
    ("maintenance_runs", "Times that the table was maintained to the end", lambda table: table.maintenance.runs),
    (
        "maintenance_failures",
        "Attempts to maintain the table that have failed",
        lambda table: table.maintenance.failures,
    ),
    ("merged_files", "Small files that maintenance has merged", lambda table: table.maintenance.merged),
    (
        "deleted_files",
        "Files that maintenance has deleted: nothing named them",
        lambda table: table.maintenance.deleted,
    ),
)


def table_metrics(driver: TableDriver, now_ms: int) -> Iterator[Family]:
    tables = list(driver.tables.values())
    for name, doc, value in COUNTS:
        samples = [Sample({"topic": table.topic}, value(table)) for table in tables]
        yield Family(f"ottla_table_{name}", COUNTER, doc, samples)
    tables = [
        table for table in tables if next(driver.led(table.topic), None) is not None
    ]  # the gauges are those of the present leader
    records, seconds = [], []
    for table in tables:
        lags = [
            (lag.records(log.high_watermark, log.log_start_offset), lag.seconds(log.high_watermark, now_ms))
            for _, log, lag in driver.lags(table)
        ]
        records.append(Sample({"topic": table.topic}, sum(each[0] for each in lags)))
        seconds.append(Sample({"topic": table.topic}, max((each[1] for each in lags), default=0)))
    yield Family(
        "ottla_table_lag_records", GAUGE, "Records that the table does not have, of partitions led here", records
    )
    yield Family("ottla_table_lag_seconds", GAUGE, "For how long there have been such records", seconds)
    waits = [Sample({"topic": table.topic}, bool(table.kind)) for table in tables]
    yield Family("ottla_table_waits", GAUGE, "1 if the table waits: /tables of the admin listener says why", waits)
    committed_here = [table for table in tables if any(each.index == COMMITTING for each in driver.led(table.topic))]
    failing = [Sample({"topic": table.topic}, bool(table.maintenance.failed)) for table in committed_here]
    yield Family(
        "ottla_table_maintenance_failing", GAUGE, "1 if the last attempt to maintain the table failed", failing
    )


def table_states(driver: TableDriver, topic: str | None, wall_ms: int, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the known facts of each table, or of one topic's, in the order of topics."""
    for name, table in sorted(driver.tables.items()):
        if topic not in (None, name):
            continue
        values = driver.values_of(name)
        partitions = {
            str(index): {
                "table": lag.position,
                "log_start": log.log_start_offset,
                "last_stable": log.last_stable_offset,
                "high_watermark": log.high_watermark,
                "lag_seconds": lag.seconds(log.high_watermark, now_ms),
            }
            for index, log, lag in driver.lags(table)
        }
        yield {
            "topic": name,
            "format": values["ottla.table.format"],
            "location": values["ottla.table.location"],
            "partitions": partitions,
            "waits": table.waits or _unstable(partitions) or None,
            "waits_since_ms": wall_ms - (now_ms - table.waits_since_ms) if table.kind else None,
            "last_commit_ms": table.last_commit_ms if table.last_commit_ms >= 0 else None,
            "commits": table.commits,
            "rows": table.rows,
            "rejected": table.rejected,
            "left_out": table.left_out,
            "lost": table.lost,
            "parted": table.parted,
            "failures": table.failures,
            "maintained_ms": table.maintenance.ended_ms if table.maintenance.ended_ms >= 0 else None,
            "maintenance_failed": table.maintenance.failed or None,
            "merged": table.maintenance.merged,
            "deleted": table.maintenance.deleted,
        }


def _unstable(partitions: dict[str, dict[str, Any]]) -> str:
    """Say that a transaction has not ended, if that is all that the table waits for."""
    found = [
        f"{index} at offset {each['last_stable']}"
        for index, each in partitions.items()
        if each["table"] == each["last_stable"] < each["high_watermark"]
    ]
    return f"a transaction has not ended in partition {', '.join(found)}" if found else ""
