"""The whole pipeline with Delta tables as gold: each count is compared with the truth, in two runs, as docs/PIPELINE.md
says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.compat.librdkafka import Outcome
from tests.compat.logins import check, outcome
from tests.pipeline.conftest import ROOT

COMMAND_SECONDS_MAX = 900
SETTINGS = (
    "pipeline.upsert_format=delta",
    "kafka.replication_factor=1",
    "spark.shuffle_partitions=1",
    "spark.options.spark.sql.codegen.wholeStage=false",
)
MIX = ("--bad", "5", "--duplicates", "5", "--late", "10")


def missing() -> str | None:
    """Return the reason why Delta cannot be used here."""
    from ottla.pipeline import delta, session
    from ottla.pipeline.config import Config

    usable = delta.is_usable(session.jars_folder(Config()))
    return None if usable else "Delta is not installed: pip install 'delta-spark==4.0.*', and make delta-jars"


def outcomes(folder: Path, bootstrap: str, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    return [report(outcome("pipeline with Delta", lambda: run(folder, bootstrap)))]


def run(folder: Path, bootstrap: str) -> None:
    """Run the pipeline twice. The second run begins with checkpoints, state and tables of the first."""
    for seed in ("1", "2"):
        pipeline(folder, bootstrap, "generate", "--rate", "400", "--seconds", "2", "--seed", seed, *MIX)
        pipeline(folder, bootstrap, "run", "all", "--once")
    checks = pipeline(folder, bootstrap, "verify")
    check('"holds": true' in checks, f"nothing was checked: {checks}")
    for name in ("windows", "sessions"):
        check((folder / "gold" / name / "_delta_log").is_dir(), f"{name} is no Delta table")


def pipeline(folder: Path, bootstrap: str, *words: str) -> str:
    command = [sys.executable, "-m", "ottla.pipeline", *words, "--bootstrap", bootstrap, "--output", str(folder)]
    command += [word for each in SETTINGS for word in ("--set", each)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=COMMAND_SECONDS_MAX)
    check(done.returncode == 0, f"{words[0]} ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout
