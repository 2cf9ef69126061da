"""The options of `format("ottla")`, by the names that the JVM source `format("kafka")` has, and their checks.

It has no I/O: a dictionary becomes options. As in Spark, the case of names does not matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.spark.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from ottla.spark.errors import ConnectorError

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ALL_COLUMNS = (*COLUMNS, "headers")
SELECTIONS = ("assign", "subscribe", "subscribePattern")
TABLES = ("records", "latest", "offsets", "groups", "schema")
STREAMED = ("records", "schema")
#: The connector sets these itself, as the JVM source does.
FORBIDDEN = (
    "auto.offset.reset",
    "enable.auto.commit",
    "interceptor.classes",
    "key.deserializer",
    "value.deserializer",
    "key.serializer",
    "value.serializer",
)
SEGMENTS = "segments://"

#: Offsets or timestamps by topic and partition.
ByPartition = dict[tuple[str, int], int]


class Limit(NamedTuple):
    """The beginning or the end of a read: one word or time for all partitions, or a number for each.

    With `is_time` the numbers are milliseconds.
    """

    everywhere: int | None
    each: ByPartition
    is_time: bool = False


class ConnectorOptions:
    """The options of a read. Raises ConnectorError for an option that is missing, wrong or contradicts another."""

    def __init__(self, given: Mapping[str, str], *, is_stream: bool = False) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self.client = client_properties(given)
        self.table = self.word("table", "records", TABLES)
        self.segments = _segments(self.get("segments") or self.get("path"))
        self.selection, self.selected = self._selection()
        #: The requested fields of decoded columns, by column: `columns=value.id` reads no other field of `value`.
        self.fields: dict[str, tuple[str, ...]] = {}
        self.columns = self._columns()
        self.starting = self._limit("starting", LATEST if is_stream else EARLIEST)
        self.ending = self._limit("ending", LATEST)
        self.is_strict_about_time = (
            self.word("startingOffsetsByTimestampStrategy", "error", ("error", "latest")) == "error"
        )
        self.fail_on_loss = self.flag("failOnDataLoss", True)
        self.partitions_min = self.number("minPartitions")
        self.records_max = self.number("maxRecordsPerPartition")
        self.offsets_max = self.number("maxOffsetsPerTrigger")
        self.group = self.client.get("group.id")
        level = self.client.get("isolation.level", "read_uncommitted")
        if level not in ("read_committed", "read_uncommitted"):
            raise ConnectorError(f"kafka.isolation.level is {level}", "read_committed or read_uncommitted")
        self.isolation = READ_COMMITTED if level == "read_committed" else READ_UNCOMMITTED
        self._check(is_stream)

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def word(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        found = (self.get(name) or default).lower()
        if found not in allowed:
            raise ConnectorError(f"option {name} is {found}", f"it is one of {', '.join(allowed)}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        return self.word(name, str(default).lower(), ("true", "false")) == "true"

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not text.isdigit() or int(text) < 1:
            raise ConnectorError(f"option {name} is {text}", "it is a number above 0")
        return int(text)

    def _selection(self) -> tuple[str, Any]:
        found = [(name, text) for name in SELECTIONS if (text := self.get(name)) is not None]
        if self.table in ("offsets", "groups") and not found:
            return "subscribePattern", ".*"
        if len(found) != 1:
            raise ConnectorError(
                "one of the options assign, subscribe and subscribePattern has to be given",
                "subscribe: topics with commas",
            )
        name, text = found[0]
        if name == "subscribe":
            names = [each.strip() for each in text.split(",") if each.strip()]
            if not names:
                raise ConnectorError("option subscribe names no topic")
            return name, sorted({*names})
        if name == "subscribePattern":
            try:
                re.compile(text)
            except re.error as fault:
                raise ConnectorError(f"option subscribePattern is no regular expression: {fault}") from None
            return name, text
        rows = _json(name, text)
        if not all(
            isinstance(row, list) and all(type(each) is int and each >= 0 for each in row) for row in rows.values()
        ):
            raise ConnectorError(f"option assign is {text}", '{"topic": [0, 1]}')
        return name, sorted({(topic, index) for topic, row in rows.items() for index in row})

    def _columns(self) -> tuple[str, ...]:
        given = self.get("columns")
        default = ALL_COLUMNS if self.flag("includeHeaders", False) else COLUMNS
        if given is None:
            return default
        by_name = {name.lower(): name for name in ALL_COLUMNS}
        found: dict[str, list[str]] = {}
        for each in (part.strip() for part in given.split(",") if part.strip()):
            name, dot, field = each.partition(".")
            if name.lower() not in by_name or (
                dot and (self.table != "schema" or name.lower() not in ("key", "value"))
            ):
                raise ConnectorError(f"option columns has {each}", f"the columns are {', '.join(ALL_COLUMNS)}")
            found.setdefault(by_name[name.lower()], []).append(field)
        if not found:
            raise ConnectorError(f"option columns is {given!r}", f"the columns are {', '.join(ALL_COLUMNS)}")
        self.fields = {name: tuple(dict.fromkeys(fields)) for name, fields in found.items() if all(fields)}
        return tuple(found)

    def _limit(self, edge: str, default: int) -> Limit:
        """Read the options of one edge in the order in which the JVM source prefers them."""
        time = self.get(f"{edge}Timestamp")
        if time is not None:
            if not time.isdigit():
                raise ConnectorError(f"option {edge}Timestamp is {time}", "milliseconds since 1970")
            return Limit(int(time), {}, is_time=True)
        name = f"{edge}OffsetsByTimestamp"
        if (text := self.get(name)) is not None:
            return Limit(None, _by_partition(name, text), is_time=True)
        name = f"{edge}Offsets"
        text = (self.get(name) or "").strip()
        words = {"": default, "earliest": EARLIEST, "latest": LATEST}
        if text.lower() in words:
            return Limit(words[text.lower()], {})
        return Limit(None, _by_partition(name, text))

    def _check(self, is_stream: bool) -> None:
        if is_stream and any(self.get(f"ending{rest}") for rest in ("Offsets", "Timestamp", "OffsetsByTimestamp")):
            raise ConnectorError("a stream has no end", "leave out endingOffsets and the like, or read a batch")
        if is_stream and self.table not in STREAMED:
            raise ConnectorError(f"the table {self.table} cannot be read as a stream", "read it as a batch")
        if not is_stream:
            for edge, limit, wrong, word in (
                ("starting", self.starting, LATEST, "latest"),
                ("ending", self.ending, EARLIEST, "earliest"),
            ):
                if not limit.is_time and (limit.everywhere == wrong or wrong in limit.each.values()):
                    raise ConnectorError(f"a batch has {word} as {edge}Offsets, and would have no rows")


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options `kafka.*` without the prefix. Raises ConnectorError for one that the connector sets itself."""
    found = {name.lower()[6:]: value for name, value in given.items() if name.lower().startswith("kafka.")}
    for name in FORBIDDEN:
        if name in found:
            raise ConnectorError(
                f"option kafka.{name} is not supported", "leave it out: startingOffsets says where to begin"
            )
    return found


def _segments(text: str | None) -> str | None:
    """Return the log directory of `segments://DIR`, or of a bare path."""
    return text.removeprefix(SEGMENTS) if text else None


def _by_partition(name: str, text: str) -> ByPartition:
    found = {}
    for topic, row in _json(name, text).items():
        if not isinstance(row, dict):
            raise ConnectorError(
                f"option {name} has no offsets by partition for {topic}", '{"topic": {"0": 12, "1": -2}}'
            )
        for index, number in row.items():
            if not str(index).isdigit() or type(number) is not int or number < EARLIEST:
                raise ConnectorError(
                    f"option {name} has {index}: {number} for {topic}", '{"topic": {"0": 12, "1": -2}}'
                )
            found[topic, int(index)] = number
    return found


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as fault:
        raise ConnectorError(f"option {name} is neither a word nor JSON: {fault}") from None
    if not isinstance(found, dict):
        raise ConnectorError(f"option {name} is {text}", "it is an object of JSON by topic")
    return found
