"""`make bench ARGS=tiers`: old segments in an object store. Needs the machine to itself, 25 GB of disk, and go, with which versitygw is built once.

Parts: copies, reads, outages (of a minute each, with --long of ten), follower (a topic of 10 GB), and memory (of 10,000 remote segments).

Standard output and --out have the table with the goals, standard error each figure as it comes.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.tiers import copies, follower, memory, outages, reads
from benchmarks.topic_tables.page import Figure, page
from benchmarks.usage import MachineTime
from tools import versitygw

COPY_MEGABYTES, READ_MEGABYTES, FOLLOWER_GIGABYTES = 2_000, 500, 10
#: Issue 45 asks for ten minutes, which four kinds of outages make forty of.
OUTAGE_SECONDS, LONG_OUTAGE_SECONDS = 60, 600


def parts(long: bool = False, gigabytes: int = FOLLOWER_GIGABYTES) -> dict[str, Callable[[], Iterator[Figure]]]:
    return {
        "copies": partial(copies.figures, COPY_MEGABYTES),
        "reads": partial(reads.figures, READ_MEGABYTES),
        "outages": partial(outages.figures, LONG_OUTAGE_SECONDS if long else OUTAGE_SECONDS),
        "follower": partial(follower.figures, gigabytes * 1_000),
        "memory": memory.figures,
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks tiers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=parts(), default=list(parts()))
    parser.add_argument("--long", action="store_true", help="outages of ten minutes in place of one")
    parser.add_argument("--gigabytes", type=int, default=FOLLOWER_GIGABYTES, help="of the topic of the follower")
    parser.add_argument("--out", type=Path, default=Path(".bench/tiers.md"))
    args = parser.parse_args(arguments)
    if reason := versitygw.missing():
        sys.exit(f"there is no store: {reason}")
    versitygw.built()
    began, clock = time.strftime("%Y-%m-%d %H:%M"), MachineTime.now()
    args.out.parent.mkdir(exist_ok=True)
    figures, failed = list[Figure](), list[str]()
    for name in args.only:
        try:
            for figure in parts(args.long, args.gigabytes)[name]():
                print(f"  {name} | {figure.line}", file=sys.stderr, flush=True)
                figures.append(figure)
        except Exception as failure:  # the figures of the other parts count without this one
            traceback.print_exc(file=sys.stderr)
            failed.append(f"{name} failed: {type(failure).__name__}: {failure}")
        args.out.write_text(page("Tiers", began, clock, figures, failed))  # an interrupted run keeps its results so far
    print(page("Tiers", began, clock, figures, failed))
    if failed:
        sys.exit(1)
