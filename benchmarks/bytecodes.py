"""The cost of a small request, independent of the machine: `python -m benchmarks.bytecodes` counts the steps of
`benchmarks.steps`, by function.

A count of bytecodes, of calls of Python's functions and of calls of C's is exact: neither the machine nor its load is in it. It is
another number with another version of Python, so `bytecodes.txt` names the version of its table, to which tests/benchmarks holds
the tree. `--write` renews the table, `--check` compares with it, `--all` has every function of each row.

What is not counted: the code of this folder, which stands for the client, and reading the monotonic clock. That one stands still
here, because a traced request takes twenty times as long, and so would count as a slow one. A follower's rows have their append,
which the timings of `benchmarks.steps` subtract.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.steps import ROWS, a_node
from ottla.server.clock import SystemClock

TABLE = Path(__file__).with_suffix(".txt")
HERE = str(Path(__file__).parent)
#: The number of calls whose median is a row: some calls have another entry of an index, or a map of hints that is full.
RUNS = 15
#: The number of calls after which a traced loop is warm: codecs are made, hints are known, a session's fast path has begun.
WARM_UPS = 50
TOLERANCE = 0.02
#: The functions that are printed of each row.
SHOWN = 12


class StandingClock(SystemClock):
    """The machine's clock, which can be made to stand still."""

    stands_at_ns = 0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        running_ns = self.mono_ns
        self.mono_ns = lambda: StandingClock.stands_at_ns or running_ns()

    def mono_ms(self) -> int:
        return self.mono_ns() // 1_000_000


class Count(NamedTuple):
    """The bytecodes and calls that one call executes, by function if a counter has the function."""

    bytecodes: Counter[CodeType]
    calls: Counter[CodeType]
    c_calls: Counter[CodeType]

    @property
    def totals(self) -> tuple[int, int, int]:
        return self.bytecodes.total(), self.calls.total(), self.c_calls.total()


def count(call: Callable[[], object]) -> Count:
    """Return what `call` executes outside of this folder."""
    counted = Count(Counter(), Counter(), Counter())
    bytecodes, calls, c_calls = counted

    def within(frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            bytecodes[frame.f_code] += 1
        return within

    def entered(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        calls[frame.f_code] += 1
        return within

    def profiled(frame: FrameType, event: str, arg: object) -> None:
        if event == "c_call" and not frame.f_code.co_filename.startswith(HERE):
            c_calls[frame.f_code] += 1

    sys.settrace(entered)
    sys.setprofile(profiled)
    try:
        call()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    return counted


def median(call: Callable[[], object]) -> Count:
    for _ in range(WARM_UPS):
        call()
    return sorted((count(call) for _ in range(RUNS)), key=lambda counted: counted.totals)[RUNS // 2]


async def counts() -> dict[str, Count]:
    """Return the count of each step, by its name."""
    found = {}
    # The check for flushes is put off: after one, reads ask the kernel whether the bytes are in memory, and the next append
    # asks for room.
    with patch("ottla.broker.scheduled_tasks.FLUSH_LOOK_MS_MAX", 3_600_000):
        async with a_node(StandingClock) as bench:
            for rows in ROWS:
                async for step in rows(bench):
                    await asyncio.sleep(0)
                    StandingClock.stands_at_ns = bench.dispatcher.mono_ns()
                    found[step.name.strip()] = median(step.call)
                    StandingClock.stands_at_ns = 0
    return found


def version() -> str:
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def table(found: dict[str, Count]) -> str:
    """Return the text of the table: the version of Python, then a line for each step."""
    rows = [f"{'bytecodes':>9} {'calls':>5} {'in C':>5}  {version()}"]
    rows += ["{:9,} {:5} {:5}  {}".format(*counted.totals, name) for name, counted in found.items()]
    return "\n".join(rows) + "\n"


def read_table() -> tuple[str, dict[str, int]]:
    """Return the version of Python, and the bytecodes of each step."""
    head, *rows = TABLE.read_text().splitlines()
    parts = (row.split(maxsplit=3) for row in rows)
    return head.split(maxsplit=4)[-1], {name: int(bytecodes.replace(",", "")) for bytecodes, _, _, name in parts}


def differences(found: dict[str, Count]) -> list[str]:
    """Return a line for each row that is further from the table than its tolerance, or that only one of both has."""
    _, expected = read_table()
    totals = {name: counted.totals[0] for name, counted in found.items()}
    return [
        f"{name}: {totals.get(name)} bytecodes, {expected.get(name)} in the table"
        for name in totals | expected
        if abs(totals.get(name, 0) - expected.get(name, 0)) > TOLERANCE * expected.get(name, 0)
    ]


def by_function(name: str, counted: Count, shown: int) -> str:
    lines = ["{:,} bytecodes, {} calls, {} calls of C: {}".format(*counted.totals, name)]
    for code, bytecodes in counted.bytecodes.most_common(shown):
        where = code.co_filename.rpartition("/ottla/")[2]
        lines.append(
            f"{bytecodes:7} {counted.calls[code]:3} {counted.c_calls[code]:3}  {where}: {getattr(code, 'co_qualname', code.co_name)}"
        )
    return "\n".join(lines)


def main() -> None:
    import uvloop

    found = uvloop.run(counts())
    if "--check" in sys.argv:
        sys.exit("\n".join(differences(found)) or 0)
    for name, counted in found.items():
        print(by_function(name, counted, 1000 if "--all" in sys.argv else SHOWN), end="\n\n")
    print(table(found), end="")
    if "--write" in sys.argv:
        TABLE.write_text(table(found))


if __name__ == "__main__":
    main()
