"""`make bench ARGS=tables`: topics that are tables. Needs the machine to itself, takes fifteen minutes, and prints one table with the goals.

Parts: translate (a leader's records become files), commits (after 100, 1,000 and 10,000 others), catch-up (a steady load beside a
table that catches up), full-speed (a producer without a limit), memory (of the process of tables, with 50 partitions), and freshness
(DuckDB at intervals of 1 and 10 s; also 60 with --long).
Standard output and --out have the table, standard error each figure as it comes.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.topic_tables import commits, freshness, node, translate
from benchmarks.topic_tables.page import Figure, page
from benchmarks.usage import MachineTime
from tools import duck

MILESTONES = (100, 1_000, 10_000)
INTERVALS, LONG_INTERVALS = (1, 10), (1, 10, 60)
CATCH_UP_RECORDS = FULL_SPEED_RECORDS = 1_000_000


def parts(long: bool) -> dict[str, Callable[[], Iterator[Figure]]]:
    return {
        "translate": translate.figures,
        "commits": partial(commits.figures, MILESTONES, long=long),
        "catch-up": partial(node.beside_catch_up, CATCH_UP_RECORDS),
        "full-speed": partial(node.full_speed, FULL_SPEED_RECORDS),
        "memory": partial(node.memory, CATCH_UP_RECORDS),
        "freshness": partial(freshness.figures, LONG_INTERVALS if long else INTERVALS),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks tables", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=parts(False), default=list(parts(False)))
    parser.add_argument(
        "--long", action="store_true", help="an interval of 60 s as well, and all of Iceberg's 10,000 commits"
    )
    parser.add_argument("--out", type=Path, default=Path(".bench/tables.md"))
    args = parser.parse_args(arguments)
    began, clock = time.strftime("%Y-%m-%d %H:%M"), MachineTime.now()
    args.out.parent.mkdir(exist_ok=True)
    figures, left_out = list[Figure](), list[str]()
    for name, part in parts(args.long).items():
        if name not in args.only:
            continue
        if name == "freshness" and (reason := duck.missing("avro", "iceberg")) is not None:
            left_out.append(f"{name} is left out: {reason}")
            continue
        try:
            for figure in part():
                print(f"  {name} | {figure.line}", file=sys.stderr, flush=True)
                figures.append(figure)
        except Exception as failure:  # the figures of the other parts count without this one
            traceback.print_exc(file=sys.stderr)
            left_out.append(f"{name} failed: {type(failure).__name__}: {failure}")
        args.out.write_text(
            page("Tables", began, clock, figures, left_out)
        )  # an interrupted run keeps its results so far
    print(page("Tables", began, clock, figures, left_out))
    if any("failed" in line for line in left_out):
        sys.exit(1)
