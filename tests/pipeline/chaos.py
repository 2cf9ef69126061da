"""Spark and brokers killed with -9 while events flow, then every count is compared with the truth.

`python -m tests.pipeline.chaos`

Three nodes and topics of three replicas; the generator's idempotent producer rides out the kills of brokers, and sends
until the last victim is back at work. Spark is one process (local), or a standalone cluster of a master and two workers
whose executors have the package only as the driver sends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from ottla.pipeline import config as configuration
from ottla.pipeline import session, verify
from ottla.testing import Cluster
from tests.pipeline.conftest import why_not
from tests.pipeline.installed import installed
from tests.pipeline.spark_cluster import SparkCluster, until

#: On a machine without other work a twentieth of this is enough.
BATCH_SECONDS_MAX = 600
CATCH_UP_SECONDS_MAX = 600
#: A killed Java process first gives back its memory.
LEFT_BEHIND_SECONDS_MAX = 20
SETTINGS = (
    "pipeline.trigger=2 seconds",
    "kafka.replication_factor=3",
    "source.max_offsets_per_trigger=4000",
    "spark.options.spark.sql.codegen.wholeStage=false",  # no driver lives long enough for compiling to save time
)
QUERIES = {"bronze", "silver", "dead-letters", "windows", "sessions"}
MIX = ("--bad", "5", "--duplicates", "5", "--late", "10")
#: Options of the standalone cluster: one small executor per worker, and all addresses are loopback ones.
EXECUTORS = (
    "spark.executor.memory=512m",
    f"spark.driver.host={session.LOOPBACK}",
    f"spark.driver.bindAddress={session.LOOPBACK}",
)


@dataclass(frozen=True)
class Program:
    """The program `ottla-pipeline`: the interpreter and its environment, and the options of this place."""

    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """A process group: a driver, its JVM and everything that they start die together."""
        with log.open("ab") as out:
            command = [self.python, "-m", "ottla.pipeline", *arguments, *self.options]
            environment = {**os.environ, **self.environment}
            return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=environment)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send -9 to all of them."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Stages:
    """The stages of `ottla-pipeline run all`, which are killed and started again."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.start()

    def start(self) -> None:
        self.process = self._program.start("run", "all", log=self._folder / "stages.log")

    def kill(self) -> None:
        kill(self.process)

    def batches(self) -> list[str]:
        """Return the query of each micro-batch done so far, over all starts."""
        path = self._folder / "progress.jsonl"
        return [json.loads(line)["query"] for line in path.read_text().splitlines()] if path.is_file() else []

    def wait_for_batches(self, queries: set[str]) -> None:
        """Wait until each of these queries has done one more micro-batch: an earlier kill would prove little."""
        before = len(self.batches())
        until(lambda: queries <= set(self.batches()[before:]), f"a batch of {queries}", BATCH_SECONDS_MAX, self.check)

    def check(self) -> None:
        """Raise if the stages have ended by themselves."""
        assert self.process.poll() is None, f"the stages ended: {(self._folder / 'stages.log').read_text()[-800:]}"


class Place(Protocol):
    """The place where Spark runs, and how each of its parts is killed and brought back."""

    program: Program

    def kill(self, victim: str, stages: Stages) -> None: ...

    def revive(self, victim: str, stages: Stages) -> None: ...


class Local:
    """Run driver and executors in one JVM: `local[2]`."""

    def __init__(self) -> None:
        self.program = Program()

    def kill(self, victim: str, stages: Stages) -> None:
        stages.kill()

    def revive(self, victim: str, stages: Stages) -> None:
        stages.start()


class Standalone:
    """Run a driver from an installed wheel beside a standalone cluster. Executors must not find the source tree."""

    def __init__(self, spark: SparkCluster, program: Program) -> None:
        self.program, self._spark, self._workers = program, spark, 0

    def kill(self, victim: str, stages: Stages) -> None:
        if victim == "executor":
            until(self._spark.kill_executor, "an executor to kill", BATCH_SECONDS_MAX, stages.check)
        elif victim == "worker":
            self._workers = 3 - (self._workers or 2)  # 1 and 2 in turn
            self._spark.kill_worker(self._workers)
        else:
            stages.kill()

    def revive(self, victim: str, stages: Stages) -> None:
        if victim == "worker":
            self._spark.start_workers(self._workers)
        elif victim == "driver":
            stages.start()


@contextlib.contextmanager
def place(name: str, folder: Path) -> Iterator[Place]:
    """Return Spark as named, `local` or `standalone`, with everything it needs in the folder."""
    if name == "local":
        yield Local()
        return
    python, environment = installed(folder / "installed")
    with SparkCluster(folder / "spark") as spark:
        options = (f"spark.master={spark.url}", *(f"spark.options.{each}" for each in EXECUTORS))
        yield Standalone(spark, Program(python, environment, set_options(options)))


def set_options(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for each in settings for part in ("--set", each))


#: Each line is one fault. Its processes are killed in this order, at once, in the middle of a micro-batch.
ACCIDENTS = {
    "local": (("driver", "broker"), ("driver",)),
    "standalone": (("executor", "broker"), ("worker",), ("driver", "broker"), ("worker", "executor"), ("broker",)),
}


def run(name: str, source: str, kills: int, rate: int, seed: int, folder: Path) -> list[verify.Check]:
    """Run this many faults of this place, one after the other, and the checks at the end. `source` is the connector of topics."""
    rng, settings = random.Random(seed), (*SETTINGS, f"source.connector={source}")
    with place(name, folder) as spark, Cluster(3) as cluster:
        output = folder / "output"
        output.mkdir(parents=True)
        options = ["--bootstrap", cluster.bootstrap, "--output", str(output), *set_options(settings)]
        program = Program(spark.program.python, spark.program.environment, (*options, *spark.program.options))
        config = configuration.load(
            None, (f"kafka.bootstrap_servers={cluster.bootstrap}", f"pipeline.output={output}", *settings)
        )
        endless = ("--rate", str(rate), "--seconds", "3600", "--seed", str(seed))
        generator = program.start("generate", *endless, *MIX, log=output / "generator.log")
        stages = Stages(program, output)
        try:
            for number in range(kills):
                victims = ACCIDENTS[name][number % len(ACCIDENTS[name])]
                stages.wait_for_batches(QUERIES)
                time.sleep(rng.uniform(0, 3))  # anywhere in a micro-batch
                broker = rng.randint(1, 3)
                for victim in victims:
                    if victim == "broker":
                        cluster.kill(broker)
                    else:
                        spark.kill(victim, stages)
                if victims[0] == "driver":
                    spark.revive("driver", stages)
                print(f"accident {number + 1}: {' and '.join(victims)} killed", flush=True)
                stages.wait_for_batches({"bronze"})
                for victim in victims:
                    if victim == "broker":
                        cluster.start(broker)
                    elif victim != "driver":
                        spark.revive(victim, stages)
            generator.terminate()
            assert generator.wait(BATCH_SECONDS_MAX) == 0, "the generator lost acknowledgements"
            return catch_up(config, str(output / "truth.jsonl"), stages)
        finally:
            stages.kill()
            kill(generator)


def catch_up(config: configuration.Config, path: str, stages: Stages) -> list[verify.Check]:
    """Return the checks, once all of them hold or time is up."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while True:
        checks = verify.verify(config, path)
        is_over = time.monotonic() > deadline or stages.process.poll() is not None
        if is_over or all(check.holds for check in checks):
            return checks
        time.sleep(2)


def left_behind(folder: str) -> list[str]:
    """Return the processes whose command line names the folder, as that of Spark's Java does."""
    running = [each.info for each in psutil.process_iter(["cmdline", "status"])]
    return [
        line
        for each in running
        if each["status"] != psutil.STATUS_ZOMBIE and folder in (line := " ".join(each["cmdline"] or ()))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.pipeline.chaos", description=__doc__)
    parser.add_argument("--place", choices=[*ACCIDENTS, "both"], default="both")
    parser.add_argument("--source", choices=("kafka", "ottla"), help="instead of each in turn")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    problem = why_not()
    if problem:
        print(f"pipeline chaos skipped: {problem}")
        return 0
    places = list(ACCIDENTS) if args.place == "both" else [args.place]
    turns = [(place, source) for source in ("kafka", "ottla") for place in places if args.source in (None, source)]
    return max(judged(place, source, args) for place, source in turns)


def judged(name: str, source: str, args: argparse.Namespace) -> int:
    """Run one place with one connector; print its checks and the verdict."""
    with tempfile.TemporaryDirectory(prefix="ottla-pipeline-chaos-") as folder:
        checks = run(name, source, args.kills, args.rate, args.seed, Path(folder))
        until(lambda: not left_behind(folder), "the end of all processes", LEFT_BEHIND_SECONDS_MAX)
    for check in checks:
        print(json.dumps(check._asdict()), flush=True)
    holds = all(check.holds for check in checks)
    verdict = "every check holds" if holds else "WRONG"
    print(f"{name}, {source}, seed {args.seed}: {args.kills} accidents in the middle of a stream: {verdict}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
