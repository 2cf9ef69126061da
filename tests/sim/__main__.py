"""`python -m tests.sim`: whole-cluster simulations by seed, and histories of one program on a cluster in memory.

--seeds A-B    those (0-999 without)            --seed N     one, with its trace
--mirror A-B   histories of `ottla mirror` alone, in place of clusters
--registry A-B histories of the instances of `ottla registry` alone
--tiers A-B    clusters whose old segments lie in a store, and with every fourth seed unclean elections among them
--tables A-B   clusters whose topics are tables, where pyarrow is installed
--sink A-B     histories of Spark's exactly-once sink alone, where pyspark and pyarrow are installed
--seconds S    virtual seconds of a run (60)    --jobs J     processes (2)
--mutant NAME  with a known mistake put in; ends at the first seed in which an invariant that it breaks notices. --mutants
               lists them
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context

from tests.sim import mirror_history, registry_history, tier_history, tier_lineages
from tests.sim.mirror_model import MirrorBroken
from tests.sim.mutants import MUTANTS, applied
from tests.sim.registry_truth import RegistryBroken
from tests.sim.simulation import Result, Simulation

#: One seed out of so many is run twice: the same seed has to give the same trace.
REPEAT_EVERY = 20
FAILURES_SHOWN = 5
PROGRESS_SECONDS = 10.0
#: One seed out of so many has unclean elections, too.
LINEAGES_EVERY = 4


def play_tiers(seed: int) -> None:
    tier_history.play(seed)
    if seed % LINEAGES_EVERY == 0:
        tier_lineages.play(seed // LINEAGES_EVERY)


#: The function that plays a program's history of a seed, and raises an error if an invariant is violated.
HISTORIES: dict[str, tuple[Callable[[int], object], type[AssertionError]]] = {
    "mirror": (mirror_history.play, MirrorBroken),
    "registry": (registry_history.play, RegistryBroken),
    "tiers": (play_tiers, tier_history.TiersBroken),
}
if find_spec("pyarrow") is not None:
    from tests.sim import table_cluster

    HISTORIES["tables"] = table_cluster.play, table_cluster.TablesBroken
if find_spec("pyspark") is not None and find_spec("pyarrow") is not None:
    from tests.sim import sink_history
    from tests.sim.sink_model import SinkBroken

    HISTORIES["sink"] = sink_history.play, SinkBroken


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Whole-cluster simulations by seed.")
    parser.add_argument("--seeds", default="0-999", metavar="A-B")
    parser.add_argument("--seed", type=int, metavar="N")
    for name in HISTORIES:
        parser.add_argument(f"--{name}", metavar="A-B", help=f"the {name}'s histories alone, of these seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of a run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), metavar="NAME")
    parser.add_argument("--mutants", action="store_true", help="list the mutants")
    parser.add_argument("--verbose", action="store_true", help="print every line of the trace")
    return parser


def simulate(task: tuple[int, float, str | None, bool]) -> Result:
    seed, seconds, mutant, verbose = task
    logging.getLogger().setLevel(logging.DEBUG if verbose else logging.ERROR)
    # Garbage is collected only after the run: a collection during the run would cost time, and would run finalizers at random
    # moments.
    gc.collect()
    gc.disable()
    with applied(mutant):
        result = Simulation(seed, seconds, verbose=verbose).run()
        if seed % REPEAT_EVERY == 0 and mutant is None and result.violation is None:
            again = Simulation(seed, seconds).run()
            if again.hash != result.hash:
                result.violation = f"the same seed made the traces {result.hash} and {again.hash}"
    return result


def results(tasks: Iterable[tuple[int, float, str | None, bool]], jobs: int) -> Iterator[Result]:
    if jobs <= 1:
        yield from map(simulate, tasks)
        return
    with get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap(simulate, tasks)


def seeds_of(text: str) -> range:
    """Return the seeds that A-B, or a number alone, means."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def play_history(name: str, seed: int) -> tuple[int, str | None]:
    """Play a history of a program. Return its seed, and the error, if there is one."""
    logging.getLogger().setLevel(logging.CRITICAL)
    play, broken = HISTORIES[name]
    try:
        play(seed)
    except broken as fault:
        return seed, str(fault)
    return seed, None


def run_histories(name: str, seeds: range, jobs: int) -> int:
    """Play a program's histories of these seeds. Returns 1 if one is broken, else 0."""
    began, failed = time.monotonic(), 0
    progress = Progress(len(seeds))
    with get_context("fork").Pool(jobs, maxtasksperchild=50) as pool:
        for done, (seed, broken) in enumerate(pool.imap(partial(play_history, name), seeds), 1):
            progress.show(done, failed)
            if broken is not None:
                failed += 1
                print(f"{name}: seed {seed} failed: {broken}\nreplay: python -m tests.sim --{name} {seed}", flush=True)
    print(f"{name}: {len(seeds)} seeds, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def run(arguments: argparse.Namespace) -> int:
    if arguments.seed is not None:
        seeds, jobs = range(arguments.seed, arguments.seed + 1), 1
    else:
        seeds, jobs = seeds_of(arguments.seeds), arguments.jobs
    began, seconds, acknowledged, failed = time.monotonic(), 0.0, 0, 0
    struck: Counter[str] = Counter()
    # for the seeds of a mutant: violations that were noticed but that this mutant does not cause
    others: Counter[str] = Counter()
    tasks = [(seed, arguments.seconds, arguments.mutant, arguments.verbose) for seed in seeds]
    progress = Progress(len(seeds))
    for done, result in enumerate(results(tasks, jobs), 1):
        progress.show(done, failed)
        seconds += result.virtual_seconds
        acknowledged += result.acknowledged
        struck.update(result.struck)
        if result.violation is None:
            continue
        if arguments.mutant is not None:
            if not MUTANTS[arguments.mutant].is_caught_by(result.number):
                others[result.violation[:80]] += 1
                continue
            print(f"{arguments.mutant}: noticed after {result.seed - seeds.start + 1} seeds: {result.violation}")
            return 0
        failed += 1
        show(result, arguments.seconds, whole=arguments.seed is not None, brief=failed > FAILURES_SHOWN)
    took = time.monotonic() - began
    print(
        f"{len(seeds)} seeds, {failed} failed; {seconds:.0f} virtual seconds in {took:.0f} s "
        f"({seconds / took:.0f} times real time); {acknowledged} operations acknowledged"
    )
    if arguments.mutant is not None:
        by = ", ".join(sorted(MUTANTS[arguments.mutant].by))
        print(f"{arguments.mutant}: not noticed by invariant {by}; others: {dict(others)}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in struck.most_common()))
    return 1 if failed or arguments.mutant is not None else 0


class Progress:
    """Print a line now and then: how many seeds are done, how fast, and how long the others will take."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began = self._shown = time.monotonic()

    def show(self, done: int, failed: int) -> None:
        now = time.monotonic()
        if now - self._shown < PROGRESS_SECONDS or done == self._count:
            return
        self._shown = now
        rate = done / (now - self._began)
        left = int((self._count - done) / rate)
        print(
            f"{done} of {self._count} seeds, {failed} failed, {60 * rate:.0f} a minute, {left // 60}:{left % 60:02} left",
            flush=True,
        )


def show(result: Result, seconds: float, *, whole: bool, brief: bool) -> None:
    """Return the trace, or its end, and the command that repeats it; `brief` leaves out the trace."""
    if not brief:
        print("\n".join(result.trace if whole else result.trace[-40:]))
    print(f"seed {result.seed} failed at {result.virtual_seconds:.3f} s, trace {result.hash}: {result.violation}")
    print(f"replay: python -m tests.sim --seed {result.seed} --seconds {seconds:g}", flush=True)


def main() -> int:
    arguments = parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets and maps of strings are iterated in the order of their hashes, which must be the same in every run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]])
    if arguments.mutants:
        for name, mutant in MUTANTS.items():
            print(f"{name}: {mutant.text} (invariants {', '.join(sorted(mutant.by)) or 'of any number'})")
        return 0
    chosen = {name: text for name in HISTORIES if (text := getattr(arguments, name)) is not None}
    if chosen:
        return max(run_histories(name, seeds_of(text), arguments.jobs) for name, text in chosen.items())
    outcome = run(arguments)
    if arguments.seed is None and arguments.mutant is None:
        for name in HISTORIES:
            outcome |= run_histories(name, seeds_of(arguments.seeds), arguments.jobs)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
