"""The tables of `make bench` in markdown, from the figures of all turns: for benchmarks/performance-log.md, and shorter for PERFORMANCE.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.rows import Figures, Row, Samples
from benchmarks.steady.table import number

#: Above this share of stolen time the figures of a run depend on the hypervisor.
STOLEN_PERCENT_MAX = 10
UNITS = {"GB": "s/GB", "request": "us/req", "transaction": "ms/txn"}


def medians(samples: Samples) -> dict[str, dict[str, Figures]]:
    return {
        name: {
            server: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            for server, runs in by_server.items()
            if runs
        }
        for name, by_server in samples.items()
    }


def verdict(ratio: float, at_least: float | None, at_most: float | None) -> str:
    if at_least is not None:
        return f"{ratio:.2f}x (goal >= {at_least}x{'' if ratio >= at_least else ', MISSED'})"
    if at_most is not None:
        return f"{ratio:.2f}x (goal <= {at_most}x{'' if ratio <= at_most else ', MISSED'})"
    return f"{ratio:.2f}x"


def table(rows: list[Row], samples: Samples) -> list[str]:
    """Return one line for each row. The figures without a server and the stolen time are of the same minutes."""
    heads = (
        "load",
        "Kafka",
        "Ottla",
        "ratio",
        "Kafka CPU",
        "Ottla CPU",
        "ratio",
        "client's cores",
        "without a server",
        "turns, stolen",
    )
    lines = [_line(heads), _line(["---"] * len(heads))]
    by_name = medians(samples)
    for row in rows:
        ours, theirs, null, in_memory = (by_name[row.name].get(name) for name in ("ottla", "kafka", "null", "kfake"))
        assert ours is not None
        ratio = cpu_ratio = ""
        if theirs is not None:
            ratio = verdict(ours[row.figure] / theirs[row.figure], row.at_least, row.at_most)
            if row.cpu_per is not None:
                cpu_ratio = verdict(ours["cpu"] / theirs["cpu"], None, row.cpu_at_most)
        clients = "; ".join(f"{each['client']:.2f}" for each in (theirs, ours) if each is not None)
        cells = [
            _figure(theirs, row),
            _figure(ours, row),
            ratio,
            _cpu(theirs, row),
            _cpu(ours, row),
            cpu_ratio,
            clients,
        ]
        lines.append(_line([row.name, *cells, _without(null, in_memory, ours, row), _turns(samples[row.name])]))
    return lines


def short_table(rows: list[Row], samples: Samples) -> list[str]:
    """Return the table with the columns of docs/PERFORMANCE.md."""
    heads = "load", "Kafka", "Ottla", "server CPU, Kafka", "server CPU, Ottla"
    lines = [_line(heads), _line(["---"] * len(heads))]
    by_name = medians(samples)
    for row in rows:
        both = [by_name[row.name].get(server) for server in ("kafka", "ottla")]
        lines.append(_line([row.name, *(_figure(each, row) for each in both), *(_cpu(each, row) for each in both)]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _without(null: Figures | None, in_memory: Figures | None, ours: Figures, row: Row) -> str:
    """Return the figure without a server: for raw sockets the CPU of the null servers and of kfake, for librdkafka the client's
    own ceiling.
    """
    if null is None:
        return "" if in_memory is None else f"kfake {_figure(in_memory, row)}"
    if row.is_raw:
        kfake = f"; kfake {_cpu(in_memory, row)}" if in_memory is not None else ""
        return f"{_cpu(null, row)}, ours {verdict(ours['cpu'] / null['cpu'], None, row.null_at_most)}{kfake}"
    return f"{_figure(null, row)} ({null['client']:.2f} cores), ours {ours[row.figure] / null[row.figure]:.2f}x"


def _turns(by_server: dict[str, list[Figures]]) -> str:
    """Return the number of runs of each server, and their worst stolen time: above STOLEN_PERCENT_MAX the runs say little about
    the servers.
    """
    worst = max(run["stolen"] for runs in by_server.values() for run in runs)
    return f"{len(by_server['ottla'])}; {worst:.0f} %{', TOO MUCH' if worst > STOLEN_PERCENT_MAX else ''}"


def _figure(figures: Figures | None, row: Row) -> str:
    return "" if figures is None else f"{number(figures[row.figure])} {row.unit}"


def _cpu(figures: Figures | None, row: Row) -> str:
    return "" if figures is None or row.cpu_per is None else f"{number(figures['cpu'])} {UNITS[row.cpu_per]}"
