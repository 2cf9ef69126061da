"""`python -m tests.sim.measure_mutants`: the first of 200 seeds that notices each of the mutants, as a table.

    python -m tests.sim.measure_mutants                        all families
    python -m tests.sim.measure_mutants storage cluster        some of them
    python -m tests.sim.measure_mutants cluster --only old-metadata --seeds 50-99

What is measured is kept in noticed.txt, with which the tests begin; a row of a mutant that no seed noticed has -1.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from tests.broker.groups import test_history as groups
from tests.broker.groups.consumer import test_history as consumer_group
from tests.broker.groups.streams import test_history as streams_group
from tests.broker.share import test_mutants as share_partition
from tests.broker.transactions import test_history as transactions
from tests.controller.decisions import test_committed_survives as walks
from tests.controller.raft import test_simulation as raft
from tests.sim import (
    log_threads,
    test_cleaner_mutants,
    test_log_moves,
    test_mirror,
    test_mutants,
    test_tables,
    test_tiers,
)
from tests.sim.mutants import (
    CONSUMER_GROUPS,
    CONTROLLER,
    COORDINATORS,
    LOG_DIRECTORIES,
    QUORUM,
    REPLICATION,
    SHARE_GROUPS,
    STREAMS_GROUPS,
    applied,
)
from tests.sim.mutants import MUTANTS as CLUSTER
from tests.sim.noticed import NOT_NOTICED, SEEDS_MAX, Row, rows, seeds_for, write
from tests.sim.simulation import Simulation

CLUSTER_SECONDS = 60.0

Notices = Callable[[str, int], bool]


@dataclass(frozen=True)
class Family:
    names: Iterable[str]
    #: Whether a seed's history notices a mutant, by the invariants that the mutant breaks.
    notices: Notices


def by_cluster(name: str, seed: int) -> bool:
    gc.collect()
    gc.disable()
    with applied(name):
        result = Simulation(seed, CLUSTER_SECONDS).run()
    if result.violation is not None and not CLUSTER[name].is_caught_by(result.number):
        OTHERS[name][f"{seed}: {result.violation[:60]}"] += 1
    return result.violation is not None and CLUSTER[name].is_caught_by(result.number)


#: For a mutant of a cluster: noticed violations that it does not cause
OTHERS: dict[str, Counter[str]] = {name: Counter() for name in CLUSTER}

FAMILIES = {
    "storage": Family(test_mutants.MUTANTS, test_mutants.is_noticed),
    "cleaner": Family(test_cleaner_mutants.MUTANTS, test_cleaner_mutants.is_noticed),
    "threads": Family(log_threads.MUTANTS, log_threads.is_noticed),
    "moves": Family(test_log_moves.MUTANTS, test_log_moves.is_noticed),
    "groups": Family(groups.MUTANTS, groups.is_noticed),
    "one consumer group": Family(consumer_group.MUTANTS, consumer_group.is_noticed),
    "one streams group": Family(streams_group.MUTANTS, streams_group.is_noticed),
    "one share partition": Family(share_partition.MUTANTS, share_partition.is_noticed),
    "transactions": Family(transactions.MUTANTS, transactions.is_noticed),
    "admissions": Family(transactions.ADMISSION_MUTANTS, transactions.is_noticed_by_admissions),
    "raft": Family(raft.MUTANTS, raft.is_noticed),
    "mirror": Family(test_mirror.MUTANTS, test_mirror.is_noticed),
    "tables": Family(test_tables.MUTANTS, test_tables.is_noticed),
    "tiers": Family(test_tiers.MUTANTS, test_tiers.is_noticed),
    "walks": Family(walks.MUTANTS, walks.is_noticed),
    "replication": Family(REPLICATION, by_cluster),
    "log directories": Family(LOG_DIRECTORIES, by_cluster),
    "consumer groups": Family(CONSUMER_GROUPS, by_cluster),
    "share groups": Family(SHARE_GROUPS, by_cluster),
    "streams groups": Family(STREAMS_GROUPS, by_cluster),
    "controller": Family(CONTROLLER, by_cluster),
    "quorum": Family(QUORUM, by_cluster),
    "coordinators": Family(COORDINATORS, by_cluster),
}
if find_spec("pyarrow") is not None:
    from tests.sim import test_table_cluster as table_cluster

    FAMILIES["table clusters"] = Family(table_cluster.MUTANTS, table_cluster.is_noticed)


def measure(family: str, name: str, seeds: Iterable[int]) -> Row:
    notices = FAMILIES[family].notices
    return family, name, next((seed for seed in seeds if notices(name, seed)), NOT_NOTICED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.measure_mutants", description="Which seed notices what.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--seeds", default=f"0-{SEEDS_MAX - 1}", metavar="A-B")
    parser.add_argument("--only", nargs="+", metavar="MUTANT")
    parser.add_argument("--left", action="store_true", help="those that no seed is known for")
    parser.add_argument(
        "--known", action="store_true", help="begin with the seed in noticed.txt, to see that it still does"
    )
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.measure_mutants", *sys.argv[1:]])
    logging.disable(logging.CRITICAL)
    first, _, last = arguments.seeds.partition("-")
    measured: list[Row] = []
    noticed_already = {row[:2] for row in rows() if row[2] != NOT_NOTICED}
    for family in arguments.families or FAMILIES:
        for name in FAMILIES[family].names:
            if arguments.only and name not in arguments.only:
                continue
            if arguments.left and (family, name) in noticed_already:
                continue
            began = time.monotonic()
            seeds: Iterable[int] = range(int(first), int(last) + 1)
            row = measure(family, name, seeds_for(family, name) if arguments.known else seeds)
            measured.append(row)
            write([row])
            noticed = f"seed {row[2]}" if row[2] != NOT_NOTICED else f"by none of {arguments.seeds}"
            others = dict(OTHERS[name].most_common(5)) if name in OTHERS else {}
            print(f"{family:14} {name:66} {noticed:20} {time.monotonic() - began:6.0f} s {others or ''}", flush=True)
    for family in dict.fromkeys(row[0] for row in measured):
        found = [row[2] != NOT_NOTICED for row in measured if row[0] == family]
        print(f"{family}: {sum(found)} of {len(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
