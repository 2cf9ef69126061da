"""`make bench ARGS=steady`: the p99 of 500 messages/s of three nodes, quiet and beside each accident, for Ottla and for Apache Kafka.

The clusters run one after the other, each with all accidents: both together do not fit into two cores. Before each accident the
same load is measured quiet. The delays of messages count from the begin of the accident until its end, for SUDDEN_SECONDS at
least. The table goes to standard output and to --out after every row, so that an interrupted run keeps its results.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.servers import Server, start_kafka, start_ottla
from benchmarks.steady.accidents import ACCIDENTS, FULL, SHORT, Accident, Scene, Sizes, batches
from benchmarks.steady.clients import Child
from benchmarks.steady.table import Outcome, Run, delays, lost, missed, number, table
from benchmarks.steady.target import LOAD, NODES, Target
from benchmarks.usage import MachineTime
from tools.apache_kafka import VERSION
from tools.apache_kafka import missing as kafka_missing

RATE = 500
#: The time until the load's consumer and producer are connected.
LOAD_SECONDS = 4.0
QUIET_SECONDS = 8.0
SUDDEN_SECONDS = 5.0
#: The pause after a preparation and after a clean-up.
SETTLE_SECONDS = 2.0
#: The warm-up: a JVM compiles code that has run often.
WARM_SECONDS = {"ottla": 5.0, "kafka": 25.0}
WARM, WARM_GB = "warm", 0.3
#: Both servers look for work of the cleaner, retention and removal this often; the defaults are up to five minutes.
PROPERTIES = {
    "log.cleaner.backoff.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
STARTS: dict[str, Callable[..., Server]] = {"ottla": start_ottla, "kafka": start_kafka}
NAMES = {"ottla": "Ottla", "kafka": f"Apache Kafka {VERSION}"}


class Cluster:
    """The cluster under test, which is started again if an accident was too much for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._server: Server | None = None
        self._target: Target | None = None

    def target(self) -> Target:
        if self._target is None:
            self._server = STARTS[self.name](NODES, tls=True, properties=PROPERTIES)
            self._target = Target(self._server)
            warm_up(self._target, WARM_SECONDS[self.name])
        return self._target

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = self._target = None


@contextmanager
def load_of(target: Target) -> Iterator[Child]:
    """Run the load, which is under way when the body begins."""
    child = Child(
        "load",
        {"bootstrap": target.server.bootstrap, "topic": LOAD, "partitions": 1, "rate": RATE},
    )
    try:
        child.begin()
        time.sleep(LOAD_SECONDS)
        yield child
    finally:
        child.kill()


def warm_up(target: Target, seconds: float) -> None:
    target.cast_for_load()
    target.create(WARM, [list(target.addresses)])
    with load_of(target) as load:
        target.write(WARM, next(iter(target.addresses)), batches(WARM_GB))
        time.sleep(seconds)
        load.stop()
        load.figures()
    target.delete(LOAD)
    target.delete(WARM)


def measure(target: Target, accident: Accident, sizes: Sizes) -> Outcome:
    """Measure one accident at a cluster that is healthy before and after it."""
    target.wait_in_sync()
    target.cast_for_load()
    scene = Scene(target, sizes)
    try:
        accident.prepare(scene)
        time.sleep(SETTLE_SECONDS)
        with load_of(target) as load:
            quiet_ns = time.perf_counter_ns()
            time.sleep(QUIET_SECONDS)
            clock, begin_ns = MachineTime.now(), time.perf_counter_ns()
            text = accident.strike(scene)
            over_ns = time.perf_counter_ns()
            time.sleep(max(0.0, SUDDEN_SECONDS - (over_ns - begin_ns) / 1e9))
            end_ns, stolen = time.perf_counter_ns(), clock.stolen_percent()
            load.stop()
            found = load.figures()
    finally:
        scene.close()
    for topic in (*accident.topics, LOAD):
        target.delete(topic)
    time.sleep(SETTLE_SECONDS)
    quiet, beside = delays(found, quiet_ns, begin_ns), delays(found, begin_ns, end_ns)
    return Outcome(quiet, beside, lost(found), (end_ns - begin_ns) / 1e9, stolen, text)


def measured(cluster: Cluster, accident: Accident, sizes: Sizes) -> Outcome:
    """Measure an accident. If it fails, its row says so, and the next accident gets a new cluster."""
    try:
        return measure(cluster.target(), accident, sizes)
    except Exception as failure:
        traceback.print_exc(file=sys.stderr)
        cluster.close()
        return Outcome(text=f"failed: {type(failure).__name__}: {str(failure)[:200]}")


def report(server: str, name: str, outcome: Outcome) -> None:
    shown = [
        f"{what} p50 {number(each.p50)}, p99 {number(each.p99)}, max {number(each.longest)} ms of {each.count}"
        for what, each in (("quiet", outcome.quiet), ("beside", outcome.beside))
        if each is not None
    ]
    print(f"  {server} | {name}: {'; '.join([*shown, outcome.text])}", file=sys.stderr, flush=True)


def page(began: str, sizes: Sizes, clock: MachineTime, names: list[str], runs: list[Run]) -> str:
    """Return the page: the conditions of the run, and the table."""
    given = f"a node misses {sizes.catch_up_gb:g} GB, a consumer reads {sizes.read_gb:g} GB at least, {sizes.compacted_gb:g} GB are compacted"
    head = (
        f"{began}, {os.cpu_count()} cores for servers and clients, one cluster of three nodes at a time; {RATE} messages/s, replication "
        f"factor 3, acks=all; {given}. Stolen {clock.stolen_percent():.1f} % of the whole time, load average {os.getloadavg()[2]:.1f} "
        f"over the last 15 minutes."
    )
    beyond = missed(runs)
    return "\n".join(
        [
            "## Steady",
            "",
            head,
            "",
            *table(names, runs),
            "",
            f"Beyond twice of quiet: {'; '.join(beyond) or 'none'}.",
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks steady", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="accidents whose name holds this text")
    parser.add_argument("--server", nargs="*", choices=STARTS, default=list(STARTS))
    parser.add_argument("--full", action="store_true", help="10 GB to catch up and to compact, 5 GB to read")
    parser.add_argument("--short", action="store_true", help="everything small: to see that it runs")
    for size in ("catch_up_gb", "read_gb", "compacted_gb"):
        parser.add_argument(f"--{size.replace('_', '-')}", type=float)
    parser.add_argument("--out", type=Path, default=Path(".bench/steady.md"))
    args = parser.parse_args(arguments)
    sizes = FULL if args.full else SHORT if args.short else Sizes()
    given = {name: getattr(args, name) for name in ("catch_up_gb", "read_gb", "compacted_gb")}
    sizes = replace(sizes, **{name: value for name, value in given.items() if value is not None})
    rows = {each.name.format(**asdict(sizes)): each for each in ACCIDENTS}
    names = [name for name in rows if args.only in name]
    reason = kafka_missing() if "kafka" in args.server else None
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    began, clock = time.strftime("%Y-%m-%d %H:%M"), MachineTime.now()
    args.out.parent.mkdir(exist_ok=True)
    runs: list[Run] = []
    for server in args.server:
        if server == "kafka" and reason:
            continue
        cluster = Cluster(server)
        runs.append(Run(NAMES[server]))
        try:
            for name in names:
                outcome = runs[-1].outcomes[name] = measured(cluster, rows[name], sizes)
                report(server, name, outcome)
                args.out.write_text(page(began, sizes, clock, names, runs))
        finally:
            cluster.close()
    print(page(began, sizes, clock, names, runs))
