"""Partitioning of tables by the time of records: `ottla.table.partition`.

A leader puts the records of each day, or hour, into a file of its own, and what it offers is the list of them. A format may then say of
each file which one it has: Iceberg by a transform of `_kafka.timestamp`, which it finds in the file's statistics; Delta and folders of
Parquet by a column of their own, which no file has.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from ottla.server.config.tables.topic_tables import DAY, HOUR

#: A file has as many parts at most. Records whose times are of more days, or hours, end it early.
PARTS_MAX = 32
_HOUR_US = 60 * 60 * 1_000_000
_LENGTHS_US = {DAY: 24 * _HOUR_US, HOUR: _HOUR_US}
_COLUMNS = {DAY: pa.field("_kafka_day", pa.date32()), HOUR: pa.field("_kafka_hour", pa.string())}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class FilePart(NamedTuple):
    """The rows of one day, or hour: its number since 1970, how many they are, and the bytes of their file."""

    value: int
    rows: int
    size: int


def length_us(partition: str) -> int:
    """Return the microseconds of a day or an hour."""
    return _LENGTHS_US[partition]


def column_of(partition: str) -> pa.Field:
    """Return the column of formats that need one."""
    return _COLUMNS[partition]


def text_of(partition: str, value: int) -> str:
    """Return a value of that column: 2026-11-29, or 2026-11-29T13."""
    at = _BEGIN + timedelta(microseconds=value * length_us(partition))
    return at.strftime("%Y-%m-%d" if partition == DAY else "%Y-%m-%dT%H")


def listed(parts: list[FilePart]) -> bytes:
    """Return the list of parts as an offer has it."""
    return json.dumps(parts).encode()


def parts_of(data: bytes) -> list[FilePart]:
    """Return the parts that an offer lists. Raises ValueError for what is no list of them."""
    try:
        return [FilePart(*map(int, row)) for row in json.loads(data)]
    except (TypeError, RecursionError) as fault:
        raise ValueError(repr(fault)) from fault
