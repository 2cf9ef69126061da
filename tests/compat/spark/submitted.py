"""`spark-submit --py-files` with each built wheel on a standalone Spark cluster, at a node and at Apache Kafka.

The job's Python and that of the executors have the libraries that docs/SPARK.md names, and not this tree.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.session import LOOPBACK
from tests.compat.librdkafka import Outcome
from tests.compat.logins import WAIT_S, check, outcome
from tests.compat.spark.job import ROWS
from tests.pipeline.chaos import EXECUTORS
from tests.pipeline.installed import bare_python, wheel
from tests.pipeline.spark_cluster import SparkCluster
from tools import connector_dist, dist

JOB = Path(__file__).with_name("job.py")
JOB_SECONDS_MAX = 600
PACKAGES = {"ottla": "ottla.spark", "pyspark-ottla": "pyspark_ottla"}
SETTINGS = (*EXECUTORS, "spark.ui.enabled=false", "spark.sql.shuffle.partitions=1")


def outcomes(folder: Path, bootstrap: str, report: Callable[[Outcome], Outcome], server: str) -> list[Outcome]:
    """Submit the job with each wheel."""
    folder.mkdir(parents=True)
    python = bare_python(folder)
    wheels = {
        "ottla": wheel(folder / "wheels"),
        "pyspark-ottla": connector_dist.write_wheel(folder / "wheels", dist.version(), dist.DATE),
    }
    found = []
    with SparkCluster(folder / "spark") as spark:
        for name, sent in wheels.items():
            words = [str(home() / "bin" / "spark-submit"), "--master", spark.url, "--py-files", str(sent)]
            words += [word for each in SETTINGS for word in ("--conf", each)]
            words += [str(JOB), PACKAGES[name]]
            environment = {"PYSPARK_PYTHON": python, "SPARK_HOME": str(home())}
            work = partial(run, words, environment, bootstrap, folder / name)
            found.append(report(outcome(f"spark-submit {name} at {server}", work)))
    return found


def home() -> Path:
    """Return Spark's own folder in the pyspark that is installed here."""
    import pyspark

    return Path(pyspark.__file__).parent


def run(command: list[str], environment: dict[str, str], bootstrap: str, folder: Path) -> None:
    """Run the job in a new folder, after which its topics are named. Raises Failed if it has not counted each row once."""
    folder.mkdir()
    topic = folder.name
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 4, 1) for name in (topic, f"{topic}-copy")]).values():
        made.result(WAIT_S)
    done = subprocess.run(
        [*command, bootstrap, str(folder), topic],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYTHONPATH": "", **environment},
        timeout=JOB_SECONDS_MAX,
    )
    lines = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("COUNTS ")]
    check(bool(lines), f"the job ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-1500:]}")
    counts = json.loads(lines[0])["rows and distinct rows"]
    check(counts == [[ROWS, ROWS]] * 2, f"counted {counts}, and there are {ROWS} of each")
