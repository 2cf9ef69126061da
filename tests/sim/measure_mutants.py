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
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.coordinator.mutant import Mutant as CoordinatorMutant
from tests.broker.groups.history import History as GroupHistory
from tests.broker.groups.mutants import MUTANTS as GROUPS
from tests.broker.transactions.admissions import Admissions
from tests.broker.transactions.history import History as TransactionHistory
from tests.broker.transactions.mutants import ADMISSION_MUTANTS as ADMISSIONS
from tests.broker.transactions.mutants import MUTANTS as TRANSACTIONS
from tests.controller.raft.mutants import MUTANTS as RAFT
from tests.controller.raft.test_simulation import is_noticed as is_noticed_by_quorum
from tests.sim.directed_histories import cleaner_histories_of, storage_histories_of
from tests.sim.log_threads import MUTANTS as THREADS
from tests.sim.log_threads import is_noticed as is_noticed_by_threads
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
from tests.sim.storage_history import StorageHistory
from tests.sim.test_cleaner_mutants import MUTANTS as CLEANER
from tests.sim.test_mutants import MUTANTS as STORAGE
from tests.sim.test_mutants import Patch, is_noticed

CLUSTER_SECONDS = 60.0

Notices = Callable[[str, int], bool]
RAFT_BY_NAME = {mutant.name: mutant for mutant in RAFT}


@dataclass(frozen=True)
class Family:
    names: Iterable[str]
    #: Whether a seed's history notices a mutant, by what the mutant breaks.
    notices: Notices


def by_storage(mutants: dict[str, Patch], histories: Callable[[int], list[StorageHistory]]) -> Notices:
    return lambda name, seed: any(is_noticed(mutants[name], history) for history in histories(seed))


def by_coordinator(mutants: dict[str, CoordinatorMutant], run: Callable[[int], None]) -> Notices:
    def notices(name: str, seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            for target, attribute, instead in mutants[name].patches:
                patch.setattr(target, attribute, instead)
            try:
                run(seed)
            except Exception as failure:
                return getattr(failure, "number", "") in mutants[name].numbers
        return False

    return notices


def admissions(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Admissions(seed, Path(directory)).run()


def by_cluster(name: str, seed: int) -> bool:
    gc.collect()
    gc.disable()
    with applied(name):
        result = Simulation(seed, CLUSTER_SECONDS).run()
    if result.violation is not None and not CLUSTER[name].is_caught_by(result.number):
        OTHERS[name][f"{seed}: {result.violation[:60]}"] += 1
    return result.violation is not None and CLUSTER[name].is_caught_by(result.number)


#: Of a mutant of a cluster: what was noticed, and is not what it breaks.
OTHERS: dict[str, Counter[str]] = {name: Counter() for name in CLUSTER}

FAMILIES = {
    "storage": Family(STORAGE, by_storage(STORAGE, storage_histories_of)),
    "cleaner": Family(CLEANER, by_storage(CLEANER, cleaner_histories_of)),
    "threads": Family(THREADS, is_noticed_by_threads),
    "groups": Family(GROUPS, by_coordinator(GROUPS, lambda seed: GroupHistory(seed).run())),
    "transactions": Family(TRANSACTIONS, by_coordinator(TRANSACTIONS, lambda seed: TransactionHistory(seed).run())),
    "admissions": Family(ADMISSIONS, by_coordinator(ADMISSIONS, admissions)),
    "raft": Family(RAFT_BY_NAME, lambda name, seed: is_noticed_by_quorum(RAFT_BY_NAME[name], seed)),
    "replication": Family(REPLICATION, by_cluster),
    "log directories": Family(LOG_DIRECTORIES, by_cluster),
    "consumer groups": Family(CONSUMER_GROUPS, by_cluster),
    "share groups": Family(SHARE_GROUPS, by_cluster),
    "streams groups": Family(STREAMS_GROUPS, by_cluster),
    "controller": Family(CONTROLLER, by_cluster),
    "quorum": Family(QUORUM, by_cluster),
    "coordinators": Family(COORDINATORS, by_cluster),
}


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
