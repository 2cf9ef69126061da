"""The figures of clients and nodes for one stretch of the story, as numbers and as rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

#: The time within which a Produce has to be acknowledged to count as available.
IN_TIME_MS = 1_000


@dataclass(frozen=True)
class Availability:
    """The acknowledgements of the records that were due in a stretch."""

    due: int
    in_time: int
    never: int
    p50_ms: float
    p99_ms: float
    longest_ms: float

    @property
    def share(self) -> float:
        return self.in_time / self.due


def availability(found: Mapping[str, Any], begin_ns: int, end_ns: int) -> Availability | None:
    """Return the figures of `clients.load` for the records that were due between the two times; None if none was due."""
    every = [delay for at, delay in zip(found["sent_ns"], found["delays_ms"], strict=True) if begin_ns <= at < end_ns]
    if not every:
        return None
    acked = sorted(delay for delay in every if delay is not None)
    in_time = sum(delay <= IN_TIME_MS for delay in acked)
    # a record that was never acknowledged counts as the slowest
    ranked = [*acked, *[float("inf")] * (len(every) - len(acked))]
    return Availability(
        len(every), in_time, len(every) - len(acked), *(ranked[int(q * (len(ranked) - 1))] for q in (0.5, 0.99, 1.0))
    )


def near_share(looks: Sequence[tuple[int, int, Mapping[str, int]]], near: Sequence[int]) -> float | None:
    """Return the share of partitions that are read from a broker of `near`, at the last look that had any."""
    for _, _, brokers in reversed(looks):
        if total := sum(brokers.values()):
            return sum(count for broker, count in brokers.items() if int(broker) in near) / total
    return None


@dataclass
class Stretch:
    """A part of the story: its begin and end, the CPU share and memory of the nodes, and its own text."""

    name: str
    begin_ns: int
    end_ns: int = 0
    #: By node: the share of a core, the MB of private memory at the end, and the longest turn in ms, since the end of the last
    #: stretch.
    cpu: dict[int, float] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)
    turns: dict[int, float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def of_kind(figures: Mapping[int, float], nodes: Sequence[int]) -> list[float]:
    return [figures[node] for node in nodes if node in figures]


def mean_and_most(figures: Sequence[float], unit: str = "") -> str:
    return f"{fmean(figures):.3g} / {max(figures):.3g}{unit}" if figures else "-"


HEAD = [
    "| | seconds | acknowledged within 1 s | p50, p99, longest, ms | CPU of a broker, % of a core: mean / most | of a controller "
    "| memory of a broker, MB: mean / most | of a controller | longest turn, ms: controller; broker | |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]


def row(stretch: Stretch, seen: Availability | None, brokers: Sequence[int], controllers: Sequence[int]) -> str:
    share = times = "-"
    if seen is not None:
        share = f"{100 * seen.share:.2f} % of {seen.due:,}" + (f" ({seen.never} never)" if seen.never else "")
        times = f"{seen.p50_ms:.3g}, {seen.p99_ms:,.4g}, {seen.longest_ms:,.5g}"
    percent = {node: 100 * used for node, used in stretch.cpu.items()}
    turns = [max(of_kind(stretch.turns, nodes), default=0.0) for nodes in (controllers, brokers)]
    cells = [
        stretch.name,
        f"{stretch.seconds:.0f}",
        share,
        times,
        *(mean_and_most(of_kind(percent, nodes)) for nodes in (brokers, controllers)),
        *(mean_and_most(of_kind(stretch.memory, nodes)) for nodes in (brokers, controllers)),
        "; ".join(f"{turn:.0f}" for turn in turns),
        "; ".join(stretch.said),
    ]
    return f"| {' | '.join(cells)} |"
