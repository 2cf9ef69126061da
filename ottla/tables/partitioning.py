"""Partitioning of tables by the time of records: `ottla.table.partition`.

A leader writes the records of each day, or hour, to a separate file, and its offer is the list of these files. A format records
the day or hour of each file: Iceberg by a transform of `_kafka.timestamp`, which it finds in the file's statistics; Delta and
folders of Parquet by a separate column, which is not in the files.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from ottla.server.config.tables.topic_tables import DAY, HOUR

#: A file has at most this many parts. Records of more days, or hours, end it early.
PARTS_MAX = 32
_HOUR_US = 60 * 60 * 1_000_000
_LENGTHS_US = {DAY: 24 * _HOUR_US, HOUR: _HOUR_US}
_COLUMNS = {DAY: pa.field("_kafka_day", pa.date32()), HOUR: pa.field("_kafka_hour", pa.string())}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class FilePart(NamedTuple):
    """The rows of one day or hour: its number since 1970, the number of rows, and the bytes of their file."""

    value: int
    rows: int
    size: int


def length_us(partition: str) -> int:
    """Return the microseconds of a day or an hour."""
    return _LENGTHS_US[partition]


def column_of(partition: str) -> pa.Field:
    """Return the column for formats that need one."""
    return _COLUMNS[partition]


def text_of(partition: str, value: int) -> str:
    """Return a value for that column: 2026-11-29, or 2026-11-29T13."""
    at = _BEGIN + timedelta(microseconds=value * length_us(partition))
    return at.strftime("%Y-%m-%d" if partition == DAY else "%Y-%m-%dT%H")


def listed(parts: list[FilePart]) -> bytes:
    """Return the list of parts for an offer."""
    return json.dumps(parts).encode()


def parts_of(data: bytes) -> list[FilePart]:
    """Return the parts in an offer's list. Raises ValueError if it is no such list."""
    try:
        return [FilePart(*map(int, row)) for row in json.loads(data)]
    except (TypeError, RecursionError) as fault:
        raise ValueError(repr(fault)) from fault
