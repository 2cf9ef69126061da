"""docs/LOGGING.md promises log lines to operators: each of them is in the code, with the level on the page."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.rules.sources import ROOT, nodes_of, sources

PAGE = ROOT / "docs" / "LOGGING.md"
ROW = re.compile(r"^\| `(?P<line>[^`]+)` \| (?P<level>[A-Z]+) \|")
LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "note": "INFO",
}
#: A %-conversion of a log call's format.
VARIABLE = re.compile(r"%(?:\.\d)?[sdfr]")


@cache
def lines_in_the_code() -> set[tuple[str, str]]:
    """Return (level, format) of every call of a logger, and of the quorum's notes, with dots in place of conversions."""
    found = set()
    for source in sources():
        for node in nodes_of(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                level, text = LEVELS.get(node.func.attr), format_of(node.args[0])
                if level is not None and text is not None:
                    found.add((level, text))
    return found


def format_of(argument: ast.expr) -> str | None:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return VARIABLE.sub("…", argument.value).replace("%%", "%")
    if isinstance(argument, ast.JoinedStr):
        pieces = [part.value if isinstance(part, ast.Constant) else "…" for part in argument.values]
        return "".join(map(str, pieces))
    return None


ROWS = [match for line in PAGE.read_text(encoding="utf-8").splitlines() if (match := ROW.match(line))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["line"][:60])
def test_a_line_of_the_page_is_written_with_that_level(row: re.Match[str]) -> None:
    assert (row["level"], row["line"]) in lines_in_the_code()


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 40
