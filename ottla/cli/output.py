"""The output of rows: a table for people, JSON lines or YAML for programs. rich is imported only for a table on a terminal.

Names and values come from the cluster, and with them whatever a producer has written: control characters of terminals are
escaped in all three forms.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ottla.cli.errors import OUTPUT, USAGE, CommandFailed
from ottla.cli.units import cell_text

Row = Mapping[str, object]


def print_rows(rows: Iterable[Row], columns: Sequence[str], output: str) -> None:
    """Print rows: JSON and YAML have every field of each row, a table has the columns.

    If the reader of a pipe has gone, the rest is dropped.
    """
    try:
        _print(rows, columns, output)
    except BrokenPipeError:
        OUTPUT.drop()
    else:
        OUTPUT.flush()


def _print(rows: Iterable[Row], columns: Sequence[str], output: str) -> None:
    if output == "json":
        for row in rows:
            print_json(row)
    elif output == "yaml":
        _print_yaml(rows)
    elif sys.stdout.isatty():
        _print_rich(rows, columns)
    else:
        print("\n".join(plain_table(rows, columns)))


def print_json(row: Row) -> None:
    print(escaped_json(json.dumps(row, ensure_ascii=False, default=str)))


def escaped_json(line: str) -> str:
    """Return a line of JSON without control characters of terminals.

    The encoder itself leaves DEL, C1 and directions of writing as they are.
    """
    return line if line.isprintable() else "".join(map(_json_character, line))


def printable(text: str, keep: str = "") -> str:
    """Return the text with escapes such as `\\x1b` for all characters that are not printable and not in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in text)


def note(text: str) -> None:
    """Print a note to standard error, apart from the data."""
    print(printable(text, keep="\n"), file=sys.stderr)


def replace_file(path: str, data: bytes) -> None:
    """Write a file as a whole or not at all: after a full disk or Ctrl-C the former file is still there.

    Raises:
        CommandFailed: it cannot be written.
    """
    written = f"{path}.{os.getpid()}"
    try:
        with open(written, "wb") as file:
            file.write(data)
        os.replace(written, path)
    except OSError as fault:
        raise CommandFailed(f"{path} cannot be written: {fault.strerror}", "choose another file") from None
    finally:
        with suppress(OSError):
            os.unlink(written)


def would(what: str) -> None:
    """Print what a command would have changed without --dry-run."""
    note(f"would {what}; nothing was changed (--dry-run)")


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return printable(",".join(map(str, value))) or "-"
    if isinstance(value, (int, float)):
        return cell_text(column, value)
    return printable(str(value))


def _json_character(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]


def _print_yaml(rows: Iterable[Row]) -> None:
    from ottla.server.extras import missing  # imported late: it needs the engine of regular expressions

    if reason := missing("yaml", "-o yaml"):
        raise CommandFailed(reason, "use -o json", USAGE)
    import yaml

    plain = [json.loads(json.dumps(row, default=str)) for row in rows]
    print(yaml.safe_dump(plain, sort_keys=False, width=1 << 20), end="")


def plain_table(rows: Iterable[Row], columns: Sequence[str]) -> list[str]:
    """Return the lines of a table whose columns are padded with blanks, for grep, awk and cut."""
    cells = [[_cell(column, row.get(column)) for column in columns] for row in rows]
    table = [[printable(column.upper().replace("_", "-")) for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _print_rich(rows: Iterable[Row], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        heading = column.upper().replace("_", "-")
        table.add_column(heading, overflow="fold", min_width=len(heading))  # a heading must not be broken into lines
    for row in rows:
        table.add_row(*(Text(_cell(column, row.get(column))) for column in columns))
    Console().print(table)  # rich itself omits colours if NO_COLOR is set


def confirm(question: str, yes: bool) -> None:
    """Ask at a terminal before something is lost. A script is not asked, and with --yes a user is not asked either.

    Raises:
        CommandFailed: the answer is not yes.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was changed")
