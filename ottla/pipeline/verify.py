"""A comparison of every stage with the truth file: nothing is lost or doubled, and every count is right."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from ottla.pipeline import broker_table, read_topic, tables, truth
from ottla.pipeline.config import OTTLA, Config
from ottla.pipeline.spans import Span

Position = tuple[str, int, int]


class Check(NamedTuple):
    """One check, with the expected and the actual value."""

    what: str
    expected: Any
    found: Any
    holds: bool


def verify(config: Config, truth_path: str) -> list[Check]:
    sent = list(truth.read(truth_path))
    silver_rows = tables.rows(tables.sink(config, "silver", ["event_id"]))
    silver = Counter(row["event_id"] for row in silver_rows)
    expected = truth.expected(
        sent,
        window_ms=config.pipeline.window_seconds * 1000,
        gap_ms=config.pipeline.session_gap_seconds * 1000,
        seen=set(silver),
    )
    bronze = places_of_bronze(config)
    letters = read_topic.dead_letters(config)
    dead, again = dict(letters), len(letters) - len(dict(letters))
    return [
        *check_bronze(bronze, expected),
        *check_silver(silver, expected),
        *check_dead(dead, expected),
        # After a crash the JVM sink sends letters again; the connector's sink does not.
        *([Check("dead letters that are there twice", 0, again, not again)] * (config.source.connector == OTTLA)),
        *check_sum(bronze, silver, dead, expected),
        *check_gold(config, expected),
    ]


def places_of_bronze(config: Config) -> list[Any]:
    """Return the topic, partition and offset of each row of bronze."""
    if broker_table.is_read(config):
        return broker_table.places(config)
    rows = tables.rows(tables.sink(config, "bronze", ["topic", "partition", "offset"]))
    return [tuple(row.values()) for row in rows]


def check_bronze(rows: list[Any], expected: truth.Expected) -> list[Check]:
    positions = set(rows)
    lost, more = expected.bronze - positions, positions - expected.bronze
    return [
        Check(
            "bronze rows = acknowledged events",
            len(expected.bronze),
            len(positions),
            not lost and len(more) <= expected.uncertain,
        ),
        Check("bronze rows that are there twice", 0, len(rows) - len(positions), len(rows) == len(positions)),
        Check("offsets missing between bronze rows", 0, gaps(positions), gaps(positions) == 0),
    ]


def gaps(positions: set[Position]) -> int:
    by_partition: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in positions:
        by_partition[topic, partition].append(offset)
    return sum(max(offsets) - min(offsets) + 1 - len(offsets) for offsets in by_partition.values())


def check_silver(silver: Counter[str], expected: truth.Expected) -> list[Check]:
    ids = set(silver)
    return [
        Check(
            "silver events = distinct good events",
            len(expected.event_ids),
            len(ids),
            expected.event_ids <= ids and ids - expected.event_ids <= expected.uncertain_ids,
        ),
        Check("silver events that are there twice", 0, silver.total() - len(ids), silver.total() == len(ids)),
    ]


def check_dead(dead: dict[Position, str], expected: truth.Expected) -> list[Check]:
    lost = expected.dead.keys() - dead.keys()
    checks = [
        Check(
            "dead letters = bad events",
            len(expected.dead),
            len(dead),
            not lost and len(dead) - len(expected.dead) <= expected.uncertain,
        )
    ]
    found, wanted = Counter(dead.values()), Counter(expected.dead.values())
    wrong = {position for position, reason in expected.dead.items() if dead.get(position) != reason}
    checks.append(Check("dead letters by reason", dict(sorted(wanted.items())), dict(sorted(found.items())), not wrong))
    return checks


def check_sum(
    bronze: list[Any], silver: Counter[str], dead: dict[Position, str], expected: truth.Expected
) -> list[Check]:
    doubled = expected.kinds.total() - len(expected.dead) - len(expected.event_ids)
    distinct = len(set(bronze)) - doubled
    found = len(silver) + len(dead)
    return [
        Check("silver + dead letters = distinct bronze", distinct, found, abs(found - distinct) <= expected.uncertain)
    ]


def check_gold(config: Config, expected: truth.Expected) -> list[Check]:
    windows = {
        (row["window_ms"], row["page"]): truth.WindowRow(row["views"], row["duration_ms"])
        for row in tables.rows(tables.gold(config, "windows"))
    }
    sessions = {
        (row["user"], row["start_ms"]): Span(row["start_ms"], row["end_ms"], row["events"])
        for row in tables.rows(tables.gold(config, "sessions"))
    }
    # Windows that are gone again have no rows. For events whose sending is uncertain, silver decides.
    return [
        Check("gold windows = truth", len(expected.windows), len(windows), windows == expected.windows),
        Check(
            "gold views = truth",
            sum(row.views for row in expected.windows.values()),
            sum(row.views for row in windows.values()),
            windows == expected.windows,
        ),
        Check("gold sessions = truth", len(expected.sessions), len(sessions), sessions == expected.sessions),
        check_topic(
            config,
            config.kafka.pages,
            {f"{start} {page}": row.views for (start, page), row in windows.items()},
            ("window_ms", "page"),
            "views",
        ),
        check_topic(
            config,
            config.kafka.sessions,
            {f"{user} {start}": span.events for (user, start), span in sessions.items()},
            ("user", "start_ms"),
            "events",
        ),
    ]


def check_topic(config: Config, topic: str, table: dict[str, int], keys: tuple[str, str], value: str) -> Check:
    """Check that the newest message of each key in the compacted topic agrees with the table."""
    latest: dict[str, int | None] = {}
    for each in read_topic.records(config, topic):
        key = json.loads(each.key or b"{}")
        latest[f"{key[keys[0]]} {key[keys[1]]}"] = json.loads(each.value)[value] if each.value is not None else None
    there = {key: count for key, count in latest.items() if count is not None}
    return Check(f"topic {topic} = its table", len(table), len(there), there == table)
