"""The job of `job.py` with newer pyspark than the pinned one, each in an environment of its own beside it, at a node.

The findings are in docs/SPARK.md. The JVM source is left out, because its jars are for the pinned version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.compat.ecosystem.clients import Client
from tests.compat.ecosystem.installed import NotInstalled, command
from tests.compat.librdkafka import Outcome
from tests.compat.logins import outcome
from tests.compat.spark.submitted import JOB, run
from tools import connector_dist, dist

VERSIONS = ("4.1.4", "4.2.1", "4.3.0")
LIBRARIES = ("pyarrow", "pandas", "cramjam", "fastcrc")


def outcomes(folder: Path, bootstrap: str, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    folder.mkdir(parents=True)
    sent = connector_dist.write_wheel(folder, dist.version(), dist.DATE)
    found = []
    for version in VERSIONS:
        client = Client("pyspark", version, "pip", (f"pyspark=={version}", *LIBRARIES), JOB.name)
        try:
            python = command(client)[0]
        except NotInstalled as why:
            print(f"pyspark {version} is left out: {why}")
            continue
        environment = {"PYTHONPATH": str(sent), "PYSPARK_PYTHON": python}
        words = [python, str(JOB), "pyspark_ottla"]
        work = partial(run, words, environment, bootstrap, folder / f"pyspark-{version}")
        found.append(report(outcome(f"pyspark {version}", work)))
    return found
