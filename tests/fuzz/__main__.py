"""`python -m tests.fuzz` (`make fuzz ARGS=...`): fuzzes all targets, each in its own process, and prints their findings.

--count N       executions in all, shared among the targets     --seconds S    of wall time instead (60 without a count)
--target NAME   only this one (may be given again)              --jobs J       processes at a time (2)
--seed N        of libFuzzer (a random one without; printed)    --seeds N      start from so many inputs per target only
--keep          put inputs that reach new code into tests/fuzz/corpus
--replay FILE   run one input, of the target that --target names; FILE may be a line of hex
--list          the targets
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from pathlib import Path

from tests.fuzz import engine
from tests.fuzz.campaign import Campaign
from tests.fuzz.judge import Finding, Judge
from tests.fuzz.target import Target

FOLDER = Path("build/fuzz")
SECONDS = 60.0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Coverage-guided fuzzing.")
    parser.add_argument("--count", type=int, metavar="N")
    parser.add_argument("--seconds", type=float, metavar="S")
    parser.add_argument("--target", action="append", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, metavar="N")
    parser.add_argument("--seeds", type=int, metavar="N")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--replay", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    return parser


def replay(target: Target, source: str) -> int:
    """Run one input as the fuzzer would, and show the result."""
    data = Path(source).read_bytes() if Path(source).exists() else bytes.fromhex(source)
    found: list[Finding] = []
    judge = Judge(target, found.append)
    judge.watch()
    judge(data)
    judge.watch(False)
    for finding in found:
        print(f"{finding.kind}\n{finding.text}")
    if not found:
        print(f"{target.name}: {len(data)} bytes, nothing wrong")
    return 1 if found else 0


def main() -> int:
    arguments = parser().parse_args()
    logging.basicConfig(level=logging.ERROR, handlers=[logging.NullHandler()])
    plain = arguments.replay is not None or arguments.list
    if not plain and not engine.can_guide():
        print("atheris is missing: pip install atheris (Linux or macOS, Python 3.11 to 3.13)")
        return 2
    targets = engine.plain_targets() if plain else engine.guided_targets()
    if arguments.list:
        print("\n".join(targets))
        return 0
    chosen = [targets[name] for name in arguments.target or targets]
    if arguments.replay is not None:
        return replay(chosen[0], arguments.replay)
    campaign = Campaign(
        chosen,
        arguments.folder,
        seed=random.SystemRandom().randrange(1, 1 << 31) if arguments.seed is None else arguments.seed,
        jobs=arguments.jobs,
        count=arguments.count,
        seconds=arguments.seconds or (None if arguments.count else SECONDS),
        seeds_max=arguments.seeds,
    )
    return campaign.run(keep=arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
