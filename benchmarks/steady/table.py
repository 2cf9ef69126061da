"""The table of `make bench ARGS=steady`, made from the records of the load: this module uses no clock and no server."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: The goal for the ratio of the p99 beside an accident to that of a quiet cluster.
GOAL = 2.0
#: Above this share of stolen time the figures of a row depend on the hypervisor.
STOLEN_PERCENT_MAX = 10


@dataclass(frozen=True)
class Delays:
    """The delays of the messages that were sent in a stretch of time, in ms."""

    count: int
    p50: float
    p99: float
    longest: float


@dataclass
class Outcome:
    """One accident at one server."""

    quiet: Delays | None = None
    beside: Delays | None = None
    #: Messages that were sent and never read.
    lost: int = 0
    seconds: float = 0.0
    stolen_percent: float = 0.0
    #: A description of the accident, or the reason why there are no figures.
    text: str = ""


@dataclass
class Run:
    """All accidents at one server, by their names."""

    server: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def quiet_p99(self) -> float | None:
        """Return the median of the quiet stretches before all accidents: a single stretch says little."""
        found = [each.quiet.p99 for each in self.outcomes.values() if each.quiet is not None]
        return statistics.median(found) if found else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that is not below this share of all values. Raises IndexError if there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def delays(found: dict[str, Any], begin_ns: int, end_ns: int) -> Delays | None:
    """Return the delays of messages that the load sent in [begin_ns, end_ns), by their first arrival; None if there are none."""
    first: dict[int, float] = {}
    for sent_ns, delay_ms in zip(found["sent_ns"], found["delays_ms"], strict=True):
        if begin_ns <= sent_ns < end_ns:
            first.setdefault(sent_ns, delay_ms)
    if not first:
        return None
    ordered = sorted(first.values())
    return Delays(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])


def lost(found: dict[str, Any]) -> int:
    """Return the number of messages that were sent and never read."""
    return int(found["sent"]) - len(set(found["sent_ns"]))


def table(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Return one line for each accident; the first line has the quiet clusters."""
    heads = ["beside"]
    for run in runs:
        heads += [f"{run.server}: p99; max", "of quiet", "what it was"]
    lines = [_line(heads), _line(["---"] * len(heads)), _line(["quiet, median (least to most)", *_quiet(runs)])]
    for name in names:
        cells = [name]
        for run in runs:
            cells += _cells(run, run.outcomes.get(name))
        lines.append(_line(cells))
    return lines


def missed(runs: Sequence[Run]) -> list[str]:
    """Return the rows of each server that miss the goal or have no figures."""
    return [
        f"{run.server}: {name}"
        for run in runs
        for name, outcome in run.outcomes.items()
        if outcome.beside is None or _ratio(run, outcome) > GOAL
    ]


def _quiet(runs: Sequence[Run]) -> list[str]:
    cells: list[str] = []
    for run in runs:
        found = [each.quiet.p99 for each in run.outcomes.values() if each.quiet is not None]
        text = f"{number(statistics.median(found))} ({number(min(found))} to {number(max(found))}) ms" if found else ""
        cells += [text, "", f"{len(found)} stretches"]
    return cells


def _cells(run: Run, outcome: Outcome | None) -> list[str]:
    if outcome is None:
        return ["", "", ""]
    if outcome.beside is None:
        return ["", "MISSED", outcome.text]
    ratio = _ratio(run, outcome)
    notes = [outcome.text, f"{outcome.seconds:.0f} s"]
    notes += [f"{outcome.lost} messages LOST"] if outcome.lost else []
    notes += [f"stolen {outcome.stolen_percent:.0f} %, TOO MUCH"] if outcome.stolen_percent > STOLEN_PERCENT_MAX else []
    return [
        f"{number(outcome.beside.p99)}; {number(outcome.beside.longest)} ms",
        f"{number(ratio)}x ({'met' if ratio <= GOAL else 'MISSED'})",
        ", ".join(notes),
    ]


def _ratio(run: Run, outcome: Outcome) -> float:
    assert outcome.beside is not None
    quiet = run.quiet_p99
    return outcome.beside.p99 / quiet if quiet else float("inf")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Return three digits: another run would change the others."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
