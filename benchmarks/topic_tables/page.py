"""The table of `make bench ARGS=tables` in markdown."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.steady.table import number


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
    def goal(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        text = f">= {number(self.at_least)}" if self.at_least is not None else f"<= {number(self.at_most or 0)}"
        return f"{text} {self.unit}{'' if self.is_met else ', MISSED'}"


def table(figures: list[Figure]) -> list[str]:
    lines = [_line(("what", "figure", "goal", "beside it")), _line(["---"] * 4)]
    return lines + [_line((each.what, f"{number(each.value)} {each.unit}", each.goal, each.note)) for each in figures]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
