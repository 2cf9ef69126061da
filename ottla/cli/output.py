"""Prints rows: a table for people, JSON lines for programs. rich is imported only for a table on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ottla.cli.errors import CommandFailed

Row = Mapping[str, object]


def print_rows(rows: Iterable[Row], columns: Sequence[str], output: str) -> None:
    """Print rows: as JSON every field of each row, as a table the columns."""
    if output == "json":
        for row in rows:
            print_json(row)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if sys.stdout.isatty():
        _print_rich(cells, columns)
    else:
        _print_plain(cells, columns)


def print_json(row: Row) -> None:
    print(json.dumps(row, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """Print a note to standard error, apart from the data."""
    print(text, file=sys.stderr)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _print_plain(cells: list[list[str]], columns: Sequence[str]) -> None:
    """Columns padded with blanks: what grep, awk and cut are used to."""
    table = [[column.upper().replace("_", "-") for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(cells: list[list[str]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        heading = column.upper().replace("_", "-")
        table.add_column(heading, overflow="fold", min_width=len(heading))  # a heading in pieces is not readable
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)  # colourless by itself where NO_COLOR is set


def time_text(timestamp_ms: int) -> str | None:
    """Return ISO 8601 in UTC, None for a time that is not set."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def confirm(question: str, yes: bool) -> None:
    """Ask at a terminal before something is lost. A script is not asked, and neither is who has passed --yes.

    Raises:
        CommandFailed: the answer is not yes.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was changed")
