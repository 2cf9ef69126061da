"""Spark and brokers killed with -9 while events flow, then every count against the truth. `python -m tests.pipeline.chaos`

Three nodes and topics of three replicas; the generator's idempotent producer rides out the kills of brokers, and sends
until the last victim is back at work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.testing import Cluster
from pipeline import config as configuration
from pipeline import verify
from tests.pipeline.conftest import why_not

#: On a machine that does nothing else a twentieth is enough.
BATCH_SECONDS_MAX = 600
CATCH_UP_SECONDS_MAX = 600
SETTINGS = ("pipeline.trigger=2 seconds", "kafka.replication_factor=3", "source.max_offsets_per_trigger=4000")
QUERIES = {"bronze", "silver", "dead-letters", "windows", "sessions"}
MIX = ("--bad", "5", "--duplicates", "5", "--late", "10")


def program(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """`ottla-pipeline` as a process group: driver, JVM and what they started die together."""
    with log.open("ab") as out:
        command = [sys.executable, "-m", "pipeline", *arguments]
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """-9 for all of them."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Stages:
    """`ottla-pipeline run all`, killed and started again."""

    def __init__(self, options: list[str], folder: Path) -> None:
        self._options, self._folder = options, folder
        self.start()

    def start(self) -> None:
        self.process = program("run", "all", *self._options, log=self._folder / "stages.log")

    def kill(self) -> None:
        kill(self.process)

    def batches(self) -> list[str]:
        """The query of each micro-batch done so far, over all starts."""
        path = self._folder / "progress.jsonl"
        return [json.loads(line)["query"] for line in path.read_text().splitlines()] if path.is_file() else []

    def wait_for_batches(self, queries: set[str]) -> None:
        """Until each of these queries has done one more: a kill before that would prove little."""
        before, deadline = len(self.batches()), time.monotonic() + BATCH_SECONDS_MAX
        while not queries <= set(self.batches()[before:]):
            assert self.process.poll() is None, f"the stages ended: {(self._folder / 'stages.log').read_text()[-800:]}"
            assert time.monotonic() < deadline, f"no micro-batch in time, only {self.batches()[before:]}"
            time.sleep(0.1)


def run(kills: int, rate: int, seed: int, folder: Path) -> list[verify.Check]:
    """Kills Spark so often, every other time with a broker; the checks at the end."""
    rng = random.Random(seed)
    with Cluster(3) as cluster:
        options = ["--bootstrap", cluster.bootstrap, "--output", str(folder)]
        options += [part for each in SETTINGS for part in ("--set", each)]
        config = configuration.load(
            None, (f"kafka.bootstrap_servers={cluster.bootstrap}", f"pipeline.output={folder}", *SETTINGS)
        )
        endless = ("--rate", str(rate), "--seconds", "3600", "--seed", str(seed))
        generator = program("generate", *endless, *MIX, *options, log=folder / "generator.log")
        stages = Stages(options, folder)
        try:
            for number in range(kills):
                stages.wait_for_batches(QUERIES)
                time.sleep(rng.uniform(0, 3))  # anywhere in a micro-batch
                victim = rng.randint(1, 3) if number % 2 == 0 else None
                stages.kill()
                if victim:
                    cluster.kill(victim)
                stages.start()
                print(f"kill {number + 1}: Spark{f' and broker {victim}' if victim else ''}", flush=True)
                stages.wait_for_batches({"bronze"})
                if victim:
                    cluster.start(victim)
            generator.terminate()
            assert generator.wait(BATCH_SECONDS_MAX) == 0, "the generator lost acknowledgements"
            return catch_up(config, str(folder / "truth.jsonl"), stages)
        finally:
            stages.kill()
            kill(generator)


def catch_up(config: configuration.Config, path: str, stages: Stages) -> list[verify.Check]:
    """The checks, once all of them hold or time is up."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while True:
        checks = verify.verify(config, path)
        is_over = time.monotonic() > deadline or stages.process.poll() is not None
        if is_over or all(check.holds for check in checks):
            return checks
        time.sleep(2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.pipeline.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    problem = why_not()
    if problem:
        print(f"pipeline chaos skipped: {problem}")
        return 0
    with tempfile.TemporaryDirectory(prefix="ottla-pipeline-chaos-") as folder:
        checks = run(args.kills, args.rate, args.seed, Path(folder))
    for check in checks:
        print(json.dumps(check._asdict()), flush=True)
    holds = all(check.holds for check in checks)
    verdict = "every check holds" if holds else "WRONG"
    print(f"seed {args.seed}: {args.kills} kills of Spark, every other one with a broker: {verdict}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
