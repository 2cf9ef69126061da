"""Plays some random sequences against Apache Kafka, at a port, and against Ottla; `make compat ARGS=groups-random` plays many.

.venv/bin/python -m tests.broker.groups.sequences consumer --seeds 0-99 --port 39092
.venv/bin/python -m tests.broker.groups.sequences record --port 39092
.venv/bin/python -m tests.broker.groups.sequences requests --port 39092     records those of requests/, one by one

The broker has the properties of sides.py, and for requests/ those of requests.py, too.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from random import Random

from tests.broker.groups.sequences.compare import Comparison
from tests.broker.groups.sequences.generators import GENERATORS
from tests.broker.groups.sequences.recorded import record, record_requests, recorded_requests
from tests.broker.groups.sequences.requests import PROPERTIES as REQUESTS_PROPERTIES
from tests.broker.groups.sequences.sides import BIDIRECTIONAL, PLAYERS, POLICY, PROPERTIES

#: The seeds of each kind whose responses are in the recorded file.
RECORDED = range(20)
#: The seeds of the kinds of commits.py whose responses are recorded.
RECORDED_COMMITS = range(10)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.broker.groups.sequences", description=__doc__)
    parser.add_argument("kind", choices=[*GENERATORS, "record", "requests"])
    parser.add_argument("--seeds", default="0-49")
    parser.add_argument("--port", type=int, default=39092)
    parser.add_argument("--shown", type=int, default=5)
    parser.add_argument("--raw", action="store_true", help="as they are, not shrunk")
    parser.add_argument("--policy", default=BIDIRECTIONAL, help=f"the broker's {POLICY}")
    args = parser.parse_args()
    first, last = map(int, args.seeds.split("-"))
    numbers = itertools.count(int(time.time() * 10) % 10**9 * 1000)
    comparison = Comparison(args.port, numbers.__next__, PROPERTIES | {POLICY: args.policy})
    if args.kind == "requests":
        comparison.properties = PROPERTIES | REQUESTS_PROPERTIES
        record_requests(comparison.compared([sequence])[0] for sequence, _ in recorded_requests().values())
        return 0
    if args.kind == "record":
        record(
            comparison.agreed(
                [
                    make(Random(f"{kind} {seed}"))
                    for kind, make in GENERATORS.items()
                    for seed in (RECORDED if kind in PLAYERS else RECORDED_COMMITS)
                ]
            )
        )
        return 0
    begin = time.monotonic()
    seeds = range(first, last + 1)
    sequences = {GENERATORS[args.kind](Random(f"{args.kind} {seed}")): seed for seed in seeds}
    found = comparison.differing(list(sequences))
    print(f"{len(found)} of {len(sequences)} differ, {time.monotonic() - begin:.0f} s", flush=True)
    print([sequences[each.sequence] for each in found], flush=True)
    for each in found[: args.shown]:
        print(f"---- seed {sequences[each.sequence]}")
        print("\n".join((each.cut() if args.raw else comparison.shrunk(each)).lines()), flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
