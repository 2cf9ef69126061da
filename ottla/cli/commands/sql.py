"""The command `ottla sql`: a statement over topics that are tables."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Any

from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.errors import need_extra
from ottla.cli.output import note, print_rows
from ottla.cli.table_options import At, StoreOptions, location_of, store_options
from ottla.client.failures import Failure, Kind

app = App(
    "sql",
    'Ask topics that are tables: ottla sql "select count(*) from orders". It needs no cluster and only reads.',
)

main = partial(run, app)

TABLES = ("table", "topic", "format")
#: A table at a terminal needs all rows for its column widths; JSON is written row by row.
ROWS_MAX = 10_000


@app.default
def sql(
    statement: Annotated[str | None, Parameter(help="SQL of DuckDB. Without it the tables are listed.")] = None,
    /,
    *,
    at: At = None,
    option: StoreOptions = None,
    output: Output = "table",
) -> None:
    """Run a statement of DuckDB over the tables of a location, each by the name of its topic.

    A name with a dot or a dash stands in double quotes. The statement reaches these tables alone: no file, and no address.
    """
    location, options = location_of(at), store_options(option)
    need_extra("sql", "ottla sql")
    from ottla.tables.store import StoreFailure
    from ottla.tables.table import TableRefused
    from ottla.tables.table_location import TableLocation, open_store

    try:
        tables = TableLocation(open_store(location, options))
        if statement is None:
            places = [place for topic in tables.topics() for place in tables.places(topic)]
            listed = [{"table": each.name, "topic": each.topic, "format": each.format} for each in places]
            print_rows(listed, TABLES, output)
            if not listed:
                note(f"there is no table below {tables.store.url}")
            return
        from ottla.tables.sql import SqlFailed, TableDatabase

        try:
            columns, rows = TableDatabase(tables, options).run(statement)
            _print(columns, rows, output)
        except SqlFailed as fault:
            raise Failure(str(fault), f"`ottla sql --at {location}` lists the tables", Kind.WRONG) from fault
    except (StoreFailure, TableRefused) as fault:
        raise Failure(str(fault)) from fault


def _print(columns: list[str], rows: Iterator[tuple[Any, ...]], output: str) -> None:
    if output != "table":
        print_rows((dict(zip(columns, map(_plain, row), strict=True)) for row in rows), columns, output)
        return
    shown = [dict(zip(columns, map(_cell, row), strict=True)) for row in islice(rows, ROWS_MAX)]
    if columns:
        print_rows(shown, columns, output)
    if next(rows, None) is not None:
        note(f"these are the first {ROWS_MAX} rows: -o json has all of them")


def _plain(value: Any) -> Any:
    """Return a value for JSON. Bytes become their text, or \\x and hexadecimal digits if they are no text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"\\x{value.hex()}"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")  # JSON has no such number
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return value


def _cell(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False, default=str) if isinstance(plain, dict | list) else plain
