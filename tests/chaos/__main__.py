"""`make chaos`: many short runs of kill -9 cycles, each with a seed of its own; it prints one line for each run, and a summary."""

from __future__ import annotations

import argparse
import sys

from tests.chaos import kill_cycles

CYCLES_A_RUN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--cycles", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    acknowledged, slowest, bad = 0, 0.0, 0
    for number in range(args.cycles // CYCLES_A_RUN):
        seed = args.seed + number
        verdict = kill_cycles.run(CYCLES_A_RUN, seed)
        acknowledged += verdict.acknowledged
        slowest = max(slowest, *verdict.restart_seconds)
        bad += bool(verdict.problems)
        state = "; ".join(verdict.problems) or "nothing lost, doubled or moved"
        print(
            f"seed {seed}: {verdict.cycles} kills, {verdict.acknowledged} acknowledged, {verdict.read} read: {state}",
            flush=True,
        )
    print(
        f"{args.cycles} kills, {acknowledged} acknowledged records, slowest restart {slowest:.2f} s, {bad} runs with problems"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
