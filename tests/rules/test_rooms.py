"""The rooms of a package are ordered as on its page in docs/dev: each imports only those in the rows above."""

from __future__ import annotations

import re

import pytest

from tests.rules.sources import ROOT, imported_modules, sources

#: The page of each package that has a table of rooms.
PAGES = {
    "client": "CLIENT.md",
    "registry": "REGISTRY.md",
    "mirror": "MIRROR.md",
    "traffic": "TRAFFIC.md",
    "console": "CONSOLE.md",
    "spark": "SPARK.md",
    "local": "LOCAL.md",
    "cli": "COMMAND_LINE.md",
}
_ROW = re.compile(r"^\| \d[\d, ]* \| ([^|]+) \|", re.MULTILINE)
_ROOM = re.compile(r"`(\w+)(?:\.py|/)`")

Place = tuple[int, int]


def places(page: str) -> dict[str, Place]:
    """Return the row of each room. In a row with "then", rooms depend on each other from left to right, too."""
    found = {}
    for number, rooms in enumerate(_ROW.findall(page)):
        for order, room in enumerate(_ROOM.findall(rooms)):
            assert room not in found, f"{room} is there twice"
            found[room] = (number, order if "then" in rooms else 0)
    return found


def room_of(module: str, package: str) -> str:
    """Return the room of a module: `rest` for ottla.registry.rest.app; empty for a module of another package, and for the package itself."""
    top = f"ottla.{package}."
    return module.removeprefix(top).partition(".")[0] if module.startswith(top) else ""


@pytest.mark.parametrize("package", PAGES)
def test_rooms_stand_on_those_that_the_page_has_above_them(package: str) -> None:
    rooms = places((ROOT / "docs/dev" / PAGES[package]).read_text())
    assert rooms
    wrong = set()
    for source in sources():
        room = room_of(source.module, package)
        for _, module in imported_modules(source.tree):
            other = room_of(module, package)
            if room in rooms and other in rooms and other != room and rooms[other] >= rooms[room]:
                wrong.add(f"{room} imports {other}")
    assert not wrong, f"docs/dev/{PAGES[package]} has these in another order: {sorted(wrong)}"


def test_a_row_says_which_rooms_stand_on_each_other() -> None:
    assert places("| 1 | `a.py`, `b/` | x |\n| 2, 3 | `c/`, then `d.py` | y |") == {
        "a": (0, 0),
        "b": (0, 0),
        "c": (1, 0),
        "d": (1, 1),
    }
