"""The tables of `make bench ARGS=tables` and `ARGS=tiers` in markdown."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from benchmarks.steady.table import number
from benchmarks.usage import MachineTime, machine


class Figure(NamedTuple):
    """One figure with its goal, if it has one."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    #: A condition of the figure that a reader has to know.
    note: str = ""

    @property
    def is_met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def line(self) -> str:
        return f"{self.what}: {number(self.value)} {self.unit}; {self.note}"

    @property
    def goal(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        text = f">= {number(self.at_least)}" if self.at_least is not None else f"<= {number(self.at_most or 0)}"
        return f"{text} {self.unit}{'' if self.is_met else ', MISSED'}"


def page(title: str, began: str, clock: MachineTime, figures: list[Figure], left_out: list[str]) -> str:
    """Return the table, after the facts that a reader has to know first."""
    head = (
        f"{began}, {machine()}, {os.cpu_count()} cores for servers and clients, Python {sys.version.partition(' [')[0]}. Stolen "
        f"{clock.stolen_percent():.1f} % of the whole time, load average {os.getloadavg()[2]:.1f} over the last 15 minutes."
    )
    return "\n".join([f"## {title}", "", head, "", *table(figures), "", *(f"- {line}" for line in left_out), ""])


def table(figures: list[Figure]) -> list[str]:
    lines = [_line(("what", "figure", "goal", "beside it")), _line(["---"] * 4)]
    return lines + [_line((each.what, f"{number(each.value)} {each.unit}", each.goal, each.note)) for each in figures]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
