"""Records which functions of a node a turn of the simulated loop calls, and reads the walks of docs/dev/HOPS.md.

A turn is one callback of the loop. It is kept as a tree of visits: a visit to a file begins with the call that enters it from
another file, and ends with that call's return. A caller that gets control back is not visited again by that. Calls of one file that
follow each other directly are one visit, and so are all that one line of the caller makes: a loop.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tests.rules.sources import ROOT, below, short_path
from tests.sim.loop import Handle, Lane, SimLoop

MAP = "controller/metadata/shared_map.py"
#: Python has separate frames for these; a reader sees lines of their function.
INLINE = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})


class Row(NamedTuple):
    """A row of a walk: the turn's number, the node in it, and the function that is called there."""

    turn: int
    node: str
    file: str
    function: str


class Call(NamedTuple):
    depth: int
    file: str
    function: str
    #: The line that calls.
    site: tuple[CodeType, int] | None


class Turn(NamedTuple):
    """The calls that one callback of a node's loop made, in order."""

    lane: str
    calls: list[Call]


class Visit:
    """Records the hops of requests."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.goes_to: list[Visit] = []
        self._by_site: dict[object, Visit] = {}

    def to(self, call: Call) -> Visit:
        """The visit to another file that this call is part of."""
        last = self.goes_to[-1] if self.goes_to else None
        visit = last if last is not None and last.file == call.file else self._by_site.get((call.site, call.file))
        if visit is None:
            visit = Visit(call.file)
            self.goes_to.append(visit)
        self._by_site.setdefault((call.site, call.file), visit)
        return visit

    def all(self) -> Iterator[Visit]:
        for visit in self.goes_to:
            yield visit
            yield from visit.all()


@cache
def file_of(code: CodeType) -> str | None:
    """Return the file of a code from the root; None for code that is not the node's. Compiled codecs count as the compiler's."""
    if code.co_filename.startswith("<"):
        return "protocol/compile.py" if "ottla.protocol." in code.co_filename else None
    path = short_path(os.path.relpath(os.path.realpath(code.co_filename), ROOT))
    # A map is like a dict: a lookup calls no code of the node.
    return path if path.split("/")[0] in {"ottla", *below("broker")} and path != MAP else None


def traced(run: Callable[[], None]) -> list[Call]:
    """The calls that `run` makes in the node's files."""
    calls: list[Call] = []
    depth = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth
        if event == "call":
            file = file_of(frame.f_code)
            if file is not None and frame.f_code.co_name not in INLINE:
                caller = frame.f_back
                site = None if caller is None else (caller.f_code, caller.f_lineno)
                calls.append(Call(depth, file, frame.f_code.co_qualname, site))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@contextmanager
def recorded(loop: SimLoop, lanes: Sequence[Lane]) -> Iterator[list[Turn]]:
    """Record the turns of these processes while the body runs."""
    turns: list[Turn] = []

    def run(handle: Handle) -> None:
        if handle.lane not in lanes:
            handle.run()
        elif calls := traced(handle.run):
            turns.append(Turn(handle.lane.name, calls))

    loop.run_handle, before = run, loop.run_handle
    try:
        yield turns
    finally:
        loop.run_handle = before


def visits(calls: Sequence[Call], is_lookup: Callable[[str], bool]) -> Visit:
    """Build the tree. A file that is only looked up is not in it: its calls belong to its caller."""
    root = Visit("")
    stack = [(-1, root)]
    for call in calls:
        while stack[-1][0] >= call.depth:
            stack.pop()
        visit = stack[-1][1]
        if call.file != visit.file and not is_lookup(call.file):
            visit = visit.to(call)
        stack.append((call.depth, visit))
    return root


def counts(root: Visit) -> Counter[str]:
    return Counter(visit.file for visit in root.all())


def passed_through(root: Visit) -> set[str]:
    """The files that lead on to others."""
    return {visit.file for visit in root.all() if visit.goes_to}


def missing(rows: Sequence[Row], calls: Sequence[Call]) -> Row | None:
    """Return the first of the rows that is not called after the rows before it."""
    following = iter(calls)
    for row in rows:
        if not any((call.file, call.function) == (row.file, row.function) for call in following):
            return row
    return None


def walks(page: str) -> dict[str, list[Row]]:
    """Return the tables of the page by the titles above them.

    A row whose first column is empty belongs to the turn of the row before.
    """
    found: dict[str, list[Row]] = {}
    title, turn, node = "", 0, ""
    for line in page.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif match := re.fullmatch(r"\| *(?:(\d+) (\w+))? *\| `([^`]+)` \| `([^`]+)` \| [^|]+ \|", line):
            if match[1]:
                turn, node = int(match[1]), match[2]
            found.setdefault(title, []).append(Row(turn, node, match[3], match[4]))
    return found
