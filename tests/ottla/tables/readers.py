"""The same table in each format, with bytes and with typed columns, and every engine that reads it in a Python process.

A reader returns rows as objects, each with the struct `_kafka`; `seen` converts them to values that must be the same for all
engines.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ottla.server.config.tables.topic_tables import BYTES, DAY, DELTA, FILES, ICEBERG, JSON, PARQUET, UNPARTITIONED
from ottla.server.table_work import TableSettings
from ottla.tables.maintenance import MaintenancePolicy
from tests.ottla.tables.topics import TopicTables
from tools import duck

PARTITIONS = 2
SCHEMA = json.dumps({"properties": {
    "id": {"type": "integer"}, "name": {"type": "string"}, "price": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}}, "address": {"properties": {"city": {"type": "string"}}},
}})  # fmt: skip
#: The name of a form, and the settings of its table: the values, their schema, and the partitioning.
FORMS = {"bytes": (BYTES, "", UNPARTITIONED), "typed": (JSON, SCHEMA, UNPARTITIONED), "daily": (BYTES, "", DAY)}
#: The extensions of DuckDB that a format needs.
EXTENSIONS: dict[str, tuple[str, ...]] = {ICEBERG: ("avro", "iceberg"), DELTA: ("delta",), PARQUET: ()}
Row = tuple[Any, ...]
Reader = Callable[[Path], Iterable[dict[str, Any]]]


class Checksum(NamedTuple):
    """The totals that an engine has seen in a table."""

    rows: int
    digest: str


class WrittenTable(NamedTuple):
    """A table in a folder, and its rows according to the log."""

    place: Path
    rows: list[Row]


def written(folder: Path, format_: str, form: str, commits: int = 2, *, maintained: bool = False) -> WrittenTable:
    """Write a table in several commits. If it is `maintained`, maintenance has merged the first ones."""
    value, schema, partition = FORMS[form]
    settings = TableSettings(format_, str(folder), FILES, BYTES, value, {}, json_schema=schema, partition=partition)
    topic = TopicTables(settings, PARTITIONS)
    number = 0
    for commit in range(commits):
        topic.write(json.dumps(order(each)).encode() for each in range(number, number + 50))
        number += 50
        topic.offer()
        topic.commit_at_last()
        if maintained and commit == commits - 2:
            done = topic.opened.maintenance(MaintenancePolicy(age_ms=0, small_files_max=1)).run(1 << 50)
            assert done.merged or format_ == PARQUET, done
    rows = [
        (*place, place[1] * topic.logs[0].step_us, b"k", *(fields(json.loads(value)) if form == "typed" else (value,)))
        for place, value in topic.expected().items()
    ]
    return WrittenTable(folder / "ottla" / topic.owner.topic, sorted(rows))


def order(number: int) -> dict[str, Any]:
    row = {"id": number * 2**33, "name": f"näme {number}", "price": number / 3, "tags": ["a"] * (number % 3)}
    return row | ({"address": {"city": f"city {number % 7}"}} if number % 5 else {})


def fields(row: dict[str, Any]) -> Row:
    """Return the typed columns of a row: those that an engine has read, and those in the JSON."""
    address = row.get("address")
    city = None if _is_null(address) else address["city"]
    return int(row["id"]), row["name"], row["price"], tuple(row["tags"]), city


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def seen(found: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows of an engine in the order of their offsets, as Python's values."""
    rows = []
    for row in found:
        place = row["_kafka"]
        values = (bytes(row["value"]),) if "value" in row else fields(row)
        rows.append((place["partition"], place["offset"], micros(place["timestamp"]), bytes(place["key"]), *values))
    return sorted(rows)


def micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def checksum(rows: list[Row]) -> Checksum:
    return Checksum(len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())


# -- Engines ----------------------------------------------------------------------------------------------------------


def newest_metadata(place: Path) -> str:
    return f"{place}/metadata/v{(place / 'metadata/version-hint.text').read_text()}.metadata.json"


def pyiceberg(place: Path) -> Iterable[dict[str, Any]]:
    from pyiceberg.table import StaticTable

    rows: list[dict[str, Any]] = StaticTable.from_metadata(newest_metadata(place)).scan().to_arrow().to_pylist()
    return rows


def deltalake(place: Path) -> Iterable[dict[str, Any]]:
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return rows


def pyarrow(place: Path) -> Iterable[dict[str, Any]]:
    import pyarrow.dataset as ds

    rows: list[dict[str, Any]] = ds.dataset(place / "rows").to_table().to_pylist()
    return rows


def by_duckdb(query: str, format_: str) -> Reader:
    def read(place: Path) -> Iterable[dict[str, Any]]:
        table = (
            duck.connected(*EXTENSIONS[format_])
            .execute(f"select * from {query.format(place=place)}")
            .fetch_arrow_table()
        )
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    return read


def polars_iceberg(place: Path) -> Iterable[dict[str, Any]]:
    import polars
    from pyiceberg.table import StaticTable

    return polars.scan_iceberg(StaticTable.from_metadata(newest_metadata(place))).collect().to_dicts()


def polars_delta(place: Path) -> Iterable[dict[str, Any]]:
    import polars

    # Polars' own scan takes partitions from the paths of files, and fails where some have none in theirs: TABLES.md.
    return polars.scan_delta(str(place), use_pyarrow=True).collect().to_dicts()


def polars_parquet(place: Path) -> Iterable[dict[str, Any]]:
    import polars

    return polars.scan_parquet(f"{place}/rows/**/*.parquet").collect().to_dicts()


def pandas_iceberg(place: Path) -> Iterable[dict[str, Any]]:
    from pyiceberg.table import StaticTable

    return frame_rows(StaticTable.from_metadata(newest_metadata(place)).scan().to_pandas())


def pandas_delta(place: Path) -> Iterable[dict[str, Any]]:
    from deltalake import DeltaTable

    return frame_rows(DeltaTable(str(place)).to_pandas())


def pandas_parquet(place: Path) -> Iterable[dict[str, Any]]:
    import pandas

    return frame_rows(pandas.read_parquet(place / "rows"))


def frame_rows(frame: Any) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return rows


#: The readers by format and engine.
READERS: dict[str, dict[str, Reader]] = {
    ICEBERG: {
        "pyiceberg": pyiceberg,
        "duckdb": by_duckdb("iceberg_scan('{place}')", ICEBERG),
        "polars": polars_iceberg,
        "pandas": pandas_iceberg,
    },
    DELTA: {
        "deltalake": deltalake,
        "duckdb": by_duckdb("delta_scan('{place}')", DELTA),
        "polars": polars_delta,
        "pandas": pandas_delta,
    },
    PARQUET: {
        "pyarrow": pyarrow,
        "duckdb": by_duckdb("read_parquet('{place}/rows/**/*.parquet')", PARQUET),
        "polars": polars_parquet,
        "pandas": pandas_parquet,
    },
}


def missing(format_: str, engine: str) -> str | None:
    """Return why an engine cannot read a format here."""
    if engine != "duckdb":
        return None if importlib.util.find_spec(engine) else f"the package {engine} is not installed"
    return duck.missing(*EXTENSIONS[format_])
