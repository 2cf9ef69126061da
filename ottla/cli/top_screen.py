"""The screen of `ottla top`, and what its keys change: the tables that are shown, the column that sorts, the position in a long
table, pause and help.

It has no I/O. A narrow terminal has fewer columns, and a note says how many are left out; no heading is cut. The column that
sorts is always shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.cli.output import Row, plain_table, printable
from ottla.cli.top_view import GROUP_COLUMNS, NODE_COLUMNS, SIZES, TOPIC_COLUMNS
from ottla.cli.units import duration_text, size_text

ALL, NODES, TOPICS, GROUPS = "all", "nodes", "topics", "groups"
TABLES = {NODES: NODE_COLUMNS, TOPICS: TOPIC_COLUMNS, GROUPS: GROUP_COLUMNS}
VIEWS = {"a": ALL, "n": NODES, "t": TOPICS, "g": GROUPS}
#: Columns that are sorted with the smallest or first value at the top.
ASCENDING = frozenset(("node", "topic", "group", "type", "state"))
#: The blanks between two columns of a table.
GAP = 2
NAME_WIDTH_MIN = 12
#: PgUp and PgDn move by this many lines.
PAGE = 10
HELP = (
    ("q  Ctrl-C", "quit"),
    ("a n t g", "all tables; nodes, topics or groups alone"),
    ("Tab", "the next of these"),
    ("< >", "sort a table by another column"),
    ("r", "reverse its order"),
    ("up down", "move in a table, PgUp PgDn by a page"),
    ("space", "pause; go on"),
    ("h ?", "this help"),
)
KEYS = "h: help, q: quit"


@dataclass(slots=True)
class Sort:
    """The column that sorts a table, and whether the largest value is at the top."""

    column: str
    descending: bool

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in this order. Rows with equal values keep their order, and unknown values come last."""
        known = [row for row in rows if row[self.column] is not None]
        unknown = [row for row in rows if row[self.column] is None]

        def key(row: Row) -> Any:
            return row[self.column]

        return sorted(known, key=key, reverse=self.descending) + unknown

    def text(self) -> str:
        return f"by {self.column}, {'largest' if self.descending else 'smallest'} first"


@dataclass(slots=True)
class TopScreen:
    """The screen of `ottla top`: a view is one table, or all of them."""

    view: str = ALL
    is_paused: bool = False
    is_help: bool = False
    #: The first visible row, if one table has the whole screen.
    first: int = 0
    sorts: dict[str, Sort] = field(
        default_factory=lambda: {
            NODES: Sort("node", False),
            TOPICS: Sort("records_per_s", True),
            GROUPS: Sort("lag", True),
        }
    )

    def press(self, key: str) -> bool:
        """Handle a key; unknown keys do nothing. Return False for the key that quits."""
        if key == "q":
            return False
        if self.is_help:
            self.is_help = not key
        elif key in ("h", "?"):
            self.is_help = True
        elif key in VIEWS:
            self._show(VIEWS[key])
        elif key == "tab":
            views = list(VIEWS.values())
            self._show(views[(views.index(self.view) + 1) % len(views)])
        elif key == " ":
            self.is_paused = not self.is_paused
        elif self.view != ALL:
            self._press_in_table(key)
        return True

    def _show(self, view: str) -> None:
        self.view, self.first = view, 0

    def _press_in_table(self, key: str) -> None:
        sort, columns = self.sorts[self.view], TABLES[self.view]
        if step := {"<": -1, "left": -1, ">": 1, "right": 1}.get(key):
            column = columns[(columns.index(sort.column) + step) % len(columns)]
            self.sorts[self.view] = Sort(column, column not in ASCENDING)
            self.first = 0
        elif key == "r":
            sort.descending = not sort.descending
        elif step := {"up": -1, "down": 1, "page-up": -PAGE, "page-down": PAGE}.get(key):
            self.first = max(0, self.first + step)

    def lines(self, rows: Mapping[str, Sequence[Row]], height: int, width: int) -> list[str]:
        """Return the lines below the heading: as many rows of each table as there is room for, and the number of further rows."""
        if self.is_help:
            return plain_table([{"key": key, "does": does} for key, does in HELP], ("key", "does"))
        if self.view != ALL:
            return self._alone(rows[self.view], height, width)
        # Each table needs three more lines: a heading, the number of rows left out, and a blank line.
        room = shares([len(rows[name]) for name in TABLES], height - 3 * len(TABLES) + 1)
        found: list[str] = []
        for name, count in zip(TABLES, room, strict=True):
            shown = self.sorts[name].sorted(rows[name])[:count]
            found += ["", *self._table(name, shown, width)]
            if len(rows[name]) > count:
                found.append(f"... {len(rows[name]) - count} more")
        return found[1:]

    def _alone(self, rows: Sequence[Row], height: int, width: int) -> list[str]:
        count = max(1, height - 2)
        self.first = max(0, min(self.first, len(rows) - count))
        shown = self.sorts[self.view].sorted(rows)[self.first : self.first + count]
        found = self._table(self.view, shown, width)
        if len(rows) > len(shown):
            found.append(f"{self.first + 1} to {self.first + len(shown)} of {len(rows)}")
        return found

    def _table(self, name: str, rows: Sequence[Row], width: int) -> list[str]:
        shown = [_shown(row, max(NAME_WIDTH_MIN, width // 2)) for row in rows]
        return plain_table(shown, fitting(shown, TABLES[name], width, self.sorts[name].column))

    def status(self, width: int, rows: Mapping[str, Sequence[Row]]) -> str:
        """Return the line about what is shown: the order, the pause, the number of hidden columns, and the key for help."""
        words = ["paused"] if self.is_paused else []
        names = list(TABLES) if self.view == ALL else [self.view]
        if self.view != ALL:
            words.append(f"{self.view} {self.sorts[self.view].text()}")
        tables = {name: [_shown(row, max(NAME_WIDTH_MIN, width // 2)) for row in rows[name]] for name in names}
        left_out = sum(
            len(TABLES[name]) - len(fitting(shown, TABLES[name], width, self.sorts[name].column))
            for name, shown in tables.items()
        )
        if left_out:
            words.append(f"{left_out} columns need more width")
        return "; ".join([*words, KEYS])


def shares(counts: Sequence[int], room: int) -> list[int]:
    """Divide `room` lines among tables with these numbers of rows.

    What a short table does not need goes to the others. Each table gets at least one line.
    """
    found = [0] * len(counts)
    for done, index in enumerate(sorted(range(len(counts)), key=lambda index: counts[index])):
        found[index] = min(counts[index], max(1, room // (len(counts) - done)))
        room -= found[index]
    return found


def fitting(rows: Sequence[Row], columns: Sequence[str], width: int, wanted: str) -> list[str]:
    """Return the columns that fit on the screen: the first one, the one that sorts, and from the left as many others as there
    is room for.
    """
    widths = {column: max(map(len, plain_table(rows, (column,)))) + GAP for column in columns}
    chosen = {columns[0], wanted}
    left = width + GAP - sum(widths[column] for column in chosen)
    for column in columns:
        if column not in chosen:
            left -= widths[column]
            if left < 0:
                break
            chosen.add(column)
    return [column for column in columns if column in chosen]


def _shown(row: Row, name_width: int) -> Row:
    """Return the row with its numbers as people read them."""
    found: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, int | float) and name in SIZES:
            value = size_text(value)
        elif isinstance(value, int | float) and name == "cpu":
            value = f"{value:.0%}"
        elif isinstance(value, int | float) and name == "time_left":
            value = duration_text(value)
        elif isinstance(value, str):
            value = printable(value)
            value = value if len(value) <= name_width else f"{value[: name_width - 3]}..."
        found[name] = value
    return found
