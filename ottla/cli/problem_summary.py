"""The problems of a cluster in ten lines: one line for each kind of problem, with the number of its partitions.

One dead broker of three is a problem of each of its replicas: the list would have 980 lines, and the first one, with the cause,
would not be visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.client.cluster_state import Problem

LINES_MAX = 10
NAMED_MAX = 3


def summary(problems: Sequence[Problem], is_whole: bool = False) -> tuple[list[Problem], int]:
    """Return a row for each kind of problem with its places, at most LINES_MAX rows, and the number of rows that are left out.

    The order is that of `problems`: brokers, disks and the quorum come before the partitions.
    """
    if is_whole:
        return list(problems), 0
    places: dict[str, list[str]] = {}
    for place, problem in problems:
        places.setdefault(problem, []).append(place)
    rows = [Problem(_names(names), problem) for problem, names in places.items()]
    shown = rows if len(rows) <= LINES_MAX else rows[: LINES_MAX - 1]
    return shown, len(rows) - len(shown)


def _names(places: Iterable[str]) -> str:
    first, *rest = [*places]
    if not rest:
        return first
    names = [first, *rest]
    more = "" if len(names) <= NAMED_MAX else f" and {len(names) - NAMED_MAX} more"
    return ", ".join(names[:NAMED_MAX]) + more
