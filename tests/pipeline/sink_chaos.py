"""The exactly-once sink in Spark, whose driver, executors and brokers are killed with -9 at every step. `python -m tests.pipeline.sink_chaos`

A query copies a topic to another by `format("ottla")`, from the JVM source and from the connector's own. Each accident stops a task or
the commit of a micro-batch at a step, kills Spark and a broker there, and starts both again; then read_committed must see each record
once, and no transaction may be open. In a third of them the process of the commit outlives its driver, and goes on when the next one
is at work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.testing import Cluster
from tests.chaos.exactly_once import open_transactions, read_committed
from tests.chaos.message_copiers import LIBRDKAFKA, PARTITIONS, SOURCE, TARGET
from tests.pipeline import sink_job
from tests.pipeline.chaos import EXECUTORS, Program, kill, set_options
from tests.pipeline.conftest import ROOT, why_not
from tests.pipeline.installed import installed
from tests.pipeline.sink_job import BEFORE_DECISION, COMMITTED, DECIDED, HALF_COMMITTED, TASK_DONE
from tests.pipeline.spark_cluster import SparkCluster, until

#: On a machine without other work a twentieth of this is enough.
STEP_SECONDS_MAX = 600
CATCH_UP_SECONDS_MAX = 600
#: A query may end by itself: a commit that outlived its driver may take a batch from the next driver, whose message then says
#: to start the query again. And Spark gives each Python process only ten seconds to start.
RESTARTS_MAX = 10
ANYWHERE = "anywhere"
#: The time after the decision until the brokers have aborted the decided transactions.
TIMED_OUT = "decided, for longer than the timeout"
TRANSACTION_TIMEOUT_MS, ABORTED_SECONDS = 600_000, 10
#: It is longer than the time from a task to the decision on a busy machine; otherwise no batch would ever be decided.
SHORT_TIMEOUT_MS = 60_000
STEPS = (BEFORE_DECISION, DECIDED, HALF_COMMITTED, COMMITTED, TASK_DONE, ANYWHERE, TIMED_OUT)
PLACES = ("local", "standalone")
RATE = 300


class Numbers:
    """Writes 0, 1, 2 ... to the source topic from a thread, until it is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **LIBRDKAFKA})
        self._ended = threading.Event()
        self._errors: list[object] = []
        self.count = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(1 / RATE):
            key = None if self.count % 3 == 0 else b"%d" % (self.count % 50)
            self._producer.produce(SOURCE, b"%d" % self.count, key, on_delivery=self._delivered)
            self._producer.poll(0)
            self.count += 1

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._errors.append(error)

    def stop(self) -> int:
        """Return how many there are. Fail if one was not acknowledged."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(STEP_SECONDS_MAX) == 0 and not self._errors, self._errors[:3]
        return self.count


class Job:
    """The query as a program that is killed and started again."""

    def __init__(self, program: Program, cluster: Cluster, form: str, folder: Path) -> None:
        self._program, self._cluster, self._form, self._folder = program, cluster, form, folder
        self.timeout_ms = TRANSACTION_TIMEOUT_MS
        self.restarts = 0
        folder.mkdir(parents=True)
        self.start()

    def start(self) -> None:
        words = ("--bootstrap", self._cluster.bootstrap, "--from", SOURCE, "--to", TARGET, "--format", self._form)
        words += ("--folder", str(self._folder), "--timeout-ms", str(self.timeout_ms), *self._program.options)
        command = [self._program.python, str(ROOT / "tests" / "pipeline" / "sink_job.py"), *words]
        environment = {**os.environ, **self._program.environment}
        with (self._folder / "job.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=environment, start_new_session=True
            )

    def kill(self) -> None:
        kill(self._process)

    def stopped_at(self, step: str) -> int:
        """Wait until something stops at the step. Return its process id. `go_on` lets it continue."""
        sink_job.want(self._folder, step, "wait")
        stopped = self._folder / "stopped"
        until(stopped.exists, f"a stop at: {step}", STEP_SECONDS_MAX, self.keep_up)
        return int(stopped.read_text())

    def go_on(self) -> None:
        (self._folder / "stopped").unlink(missing_ok=True)

    def keep_up(self) -> None:
        """Start the query again if it has ended by itself, as its user would do."""
        if self._process.poll() is not None:
            lines = (self._folder / "job.log").read_text().splitlines()
            print(
                "the query ended:",
                next((each for each in reversed(lines) if "Exception" in each), "")[:300],
                flush=True,
            )
            self.restarts += 1
            assert self.restarts <= RESTARTS_MAX, lines[-30:]
            self.start()


class Accidents:
    """Stops, kills and restarts the query; all choices come from a seed."""

    def __init__(self, cluster: Cluster, job: Job, spark: SparkCluster | None, seed: int) -> None:
        self._cluster, self._job, self._spark = cluster, job, spark
        self._rng = random.Random(seed)

    def happen(self, step: str) -> str:
        """Return what was killed."""
        rng = self._rng
        if step == ANYWHERE:
            time.sleep(rng.uniform(0, 5))
            stopped = None
        else:
            stopped = self._job.stopped_at(DECIDED if step == TIMED_OUT else step)
        broker = rng.choice((None, *self._cluster.nodes))
        if broker is not None:
            self._cluster.kill(broker)
        with_executor = self._spark is not None and step == TASK_DONE
        survives = not with_executor and stopped is not None and rng.random() < 1 / 3
        if with_executor:
            assert self._spark is not None
            assert self._spark.kill_executor() is not None, "no executor runs"
        else:
            self._job.kill()
        if stopped is not None and not survives:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
            self._job.go_on()
        if step == TIMED_OUT:
            time.sleep(SHORT_TIMEOUT_MS / 1000 + ABORTED_SECONDS)
        if not with_executor:
            self._job.start()
        if survives:
            time.sleep(rng.uniform(0, 15))
            self._job.go_on()
        if broker is not None:
            time.sleep(rng.uniform(0, 5))
            self._cluster.start(broker)
        words = ["an executor" if with_executor else "the driver"]
        words += [f"broker {broker}"] if broker is not None else []
        return " and ".join(words) + (", and its commit lives on" if survives else "")


@contextlib.contextmanager
def placed(name: str, folder: Path) -> Iterator[tuple[Program, SparkCluster | None]]:
    """Spark in one process, or a standalone cluster whose executors get the connector only from the driver."""
    if name == "local":
        yield Program(environment={"PYTHONPATH": str(ROOT)}), None
        return
    python, environment = installed(folder / "installed")
    with SparkCluster(folder / "spark") as spark:
        settings = (f"spark.master={spark.url}", *(f"spark.options.{each}" for each in EXECUTORS))
        yield Program(python, environment, set_options(settings)), spark


def run(place: str, form: str, steps: tuple[str, ...], seed: int, folder: Path) -> list[str]:
    """Cause one fault at each of the steps. Return what is wrong at the end."""
    from confluent_kafka.admin import AdminClient, NewTopic

    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    nodes = dict.fromkeys((1, 2, 3), properties)
    with placed(place, folder) as (program, spark), Cluster(3, per_node=nodes) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (SOURCE, TARGET)]).values():
            made.result(20)
        numbers = Numbers(cluster)
        job = Job(program, cluster, form, folder / "job")
        accidents = Accidents(cluster, job, spark, seed)
        try:
            for step in steps:
                began = time.monotonic()
                if step == TIMED_OUT:  # a query has one timeout, and it must be longer than the other faults take
                    job.stopped_at(COMMITTED)
                    job.kill()
                    job.go_on()
                    job.timeout_ms = SHORT_TIMEOUT_MS
                    job.start()
                what = accidents.happen(step)
                print(f"{form}, {place}: {step}: {what} killed, {time.monotonic() - began:.0f} s", flush=True)
            job.stopped_at(COMMITTED)  # so that the last accident is over, too
            job.go_on()
            count = numbers.stop()
            found = caught_up(cluster, count, job)
        finally:
            numbers.stop()
            job.kill()
        return [*differences(found, count), *open_transactions(cluster, TARGET)]


def caught_up(cluster: Cluster, count: int, job: Job) -> Counter[int]:
    """Return the copies, once there are as many as expected, or time is up."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    found: Counter[int] = Counter()
    while True:
        with contextlib.suppress(AssertionError):  # a node that has just started, on a busy machine
            found = Counter(int(value) for value in read_committed(cluster, TARGET))
        if found.total() >= count or time.monotonic() > deadline:
            return found
        job.keep_up()
        time.sleep(1)


def differences(found: Counter[int], count: int) -> list[str]:
    expected = Counter(range(count))
    wrong: dict[str, Any] = {"missing": expected - found, "there too often": found - expected}
    return [f"{rows.total()} of {count} are {what}, like {sorted(rows)[:5]}" for what, rows in wrong.items() if rows]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.pipeline.sink_chaos", description=__doc__)
    parser.add_argument("--place", choices=PLACES, help="instead of each in turn")
    parser.add_argument("--source", choices=("kafka", "ottla"), help="instead of each in turn")
    parser.add_argument("--step", choices=STEPS, action="append", help="only these")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if problem := why_not():
        print(f"the sink's chaos is skipped: {problem}")
        return 0
    bad = 0
    # A standalone cluster has the same driver, so there an executor is killed instead.
    for place, form, steps in (
        ("local", "ottla", STEPS),
        ("local", "kafka", STEPS),
        ("standalone", "ottla", (TASK_DONE, DECIDED, TASK_DONE)),
    ):
        if (args.place or place) != place or (args.source or form) != form:
            continue
        with tempfile.TemporaryDirectory(prefix="ottla-sink-chaos-") as folder:
            wrong = run(place, form, tuple(args.step or steps), args.seed, Path(folder))
        print(f"{form}, {place}, seed {args.seed}: {'; '.join(wrong) or 'everything exactly once'}", flush=True)
        bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
