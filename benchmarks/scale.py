"""The CPU time that the metadata of many partitions takes, part by part: `python -m benchmarks.scale [partitions ...]`.

Each part is measured at several sizes, up to a million partitions, with 50 brokers and three replicas, in a process of its own. An
outage of all brokers takes most of the time, a quarter of an hour with the largest. A part runs in turns of the event loop, on a
clock that calls them one after the other: the whole time, the number of turns, and the longest of them. The time includes the
decision, its replay, the encoding of the batch, and its publication, but no networks and no syncs of disks.
benchmarks/scale-log.md has a run.

    --topic N    partitions of a topic (100)
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterable

from benchmarks.scale_broker import measure_broker
from benchmarks.scale_controller import measure_controller, measure_outage
from benchmarks.scale_turns import Figures
from ottla.node.process import GC_THRESHOLDS

SIZES = (10_000, 50_000, 200_000, 1_000_000)
SIDES: dict[str, Callable[[Figures, int, int], None]] = {
    "controller": measure_controller,
    "broker": measure_broker,
    "outage": measure_outage,
}


def row(name: str, by_size: Iterable[list[float]]) -> str:
    """Return the row: the whole time, the turns and the longest turn at each size."""
    cells = []
    for whole, *turns in by_size:
        cells.append(f"{whole:,.1f}" + (f" / {turns[0]:,.0f} / {turns[1]:,.1f}" if turns else ""))
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--topic", type=int, default=100)
    parser.add_argument("--side", choices=SIDES, help="only this side")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        gc.set_threshold(*GC_THRESHOLDS)
        figures = Figures()
        SIDES[args.side](figures, args.sizes[0], args.topic)
        print(json.dumps(figures.found))
        return
    print(f"| CPU ms: whole / turns / longest | {' | '.join(f'{size:,}' for size in args.sizes)} |")
    print(f"| --- |{' --- |' * len(args.sizes)}")
    for side in [args.side] if args.side else SIDES:
        found = []
        for size in args.sizes:
            command = [sys.executable, "-m", "benchmarks.scale", str(size), "--one", "--side", side]
            command += ["--topic", str(args.topic)]
            found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
        for name in found[0]:
            print(row(name, (each[name] for each in found)), flush=True)


if __name__ == "__main__":
    main()
