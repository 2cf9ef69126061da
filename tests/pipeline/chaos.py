"""Long: Spark and brokers killed with -9 while events flow, then every count against the truth. `python -m tests.pipeline.chaos`

Three nodes and topics of three replicas; the generator's idempotent producer rides out the kills of brokers.
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

CATCH_UP_SECONDS_MAX = 300
START_SECONDS_MAX = 120


class Stages:
    """`ottla-pipeline run all` as a process group: driver, JVM and what they started die together."""

    def __init__(self, options: list[str], log: Path) -> None:
        self._options, self._log = options, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            command = [sys.executable, "-m", "pipeline", "run", "all", *self._options]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def batches(folder: Path) -> int:
    path = folder / "progress.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def wait_for_batches(folder: Path, more: int, stages: Stages) -> None:
    """Until that many micro-batches more were done: a kill before the first would prove nothing."""
    wanted, deadline = batches(folder) + more, time.monotonic() + START_SECONDS_MAX
    while batches(folder) < wanted:
        assert stages.process.poll() is None, f"the stages ended with {stages.process.returncode}"
        assert time.monotonic() < deadline, "no micro-batch in time"
        time.sleep(0.1)


def run(kills: int, rate: int, seed: int, folder: Path) -> bool:
    rng = random.Random(seed)
    path = str(folder / "truth.jsonl")
    with Cluster(3) as cluster:
        settings = ["pipeline.trigger=2 seconds", "kafka.replication_factor=3", "source.max_offsets_per_trigger=4000"]
        options = ["--bootstrap", cluster.bootstrap, "--output", str(folder)]
        options += [part for each in settings for part in ("--set", each)]
        config = configuration.load(
            None, (f"kafka.bootstrap_servers={cluster.bootstrap}", f"pipeline.output={folder}", *settings)
        )
        mix = ["--bad", "5", "--duplicates", "5", "--late", "10", "--seed", str(seed)]
        generate = [
            sys.executable,
            "-m",
            "pipeline",
            "generate",
            "--rate",
            str(rate),
            "--seconds",
            str(kills * 20),
            *mix,
            *options,
        ]
        with subprocess.Popen(generate, stdout=subprocess.DEVNULL) as generator:
            stages = Stages(options, folder / "stages.log")
            try:
                for number in range(kills):
                    wait_for_batches(folder, 3, stages)
                    time.sleep(rng.uniform(0, 3))  # anywhere in a micro-batch
                    victim = rng.randint(1, 3)
                    stages.kill()
                    if number % 2 == 0:
                        cluster.kill(victim)
                    stages.start()
                    print(f"kill {number + 1}: Spark{f' and broker {victim}' if number % 2 == 0 else ''}", flush=True)
                    if number % 2 == 0:
                        wait_for_batches(folder, 1, stages)
                        cluster.start(victim)
                assert generator.wait() == 0, "the generator lost acknowledgements"
                return catch_up(config, path, stages)
            finally:
                stages.kill()
                generator.kill()


def catch_up(config: configuration.Config, path: str, stages: Stages) -> bool:
    """Until all checks hold, or time is up; then prints them."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while True:
        checks = verify.verify(config, path)
        holds = all(check.holds for check in checks)
        if holds or time.monotonic() > deadline or stages.process.poll() is not None:
            for check in checks:
                print(json.dumps(check._asdict()), flush=True)
            return holds
        time.sleep(3)


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
        holds = run(args.kills, args.rate, args.seed, Path(folder))
    print(
        f"seed {args.seed}: {args.kills} kills of Spark, every other one with a broker: {'every check holds' if holds else 'WRONG'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
