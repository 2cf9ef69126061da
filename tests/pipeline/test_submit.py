"""The stages as programs that are submitted to Spark as files, and the output on the screen when Spark fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import LONG
from tests.needs import needs_packages, skip_because

needs_packages("pyspark")

from ottla.pipeline import session, tables, topics
from ottla.pipeline.config import Config
from tests.pipeline.conftest import ROOT, Node, why_not

pytestmark = pytest.mark.timeout(600)
LINES_MAX = 15


@pytest.fixture(autouse=True)
def needs_spark() -> None:
    skip_because(why_not())


def written(config: Config, folder: Path) -> list[str]:
    """Return the options for this configuration, most of it in a file."""
    file = folder / "pipeline.toml"
    file.write_text(
        f'[kafka]\nbootstrap_servers = "{config.kafka.bootstrap_servers}"\nevents = "{config.kafka.events}"\n'
        f'dead_letters = "{config.kafka.dead_letters}"\npages = "{config.kafka.pages}"\nsessions = "{config.kafka.sessions}"\n'
        f'[pipeline]\noutput = "{folder / "out"}"\n'
    )
    return ["--config", str(file), "--set", "pipeline.trigger=once"]


def submit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Submit the program as docs/PIPELINE.md says, from outside of the source tree, which is not on the path then."""
    jars = ",".join(str(jar) for jar in (ROOT / "build" / "spark-jars").glob("*.jar"))
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]", "--jars", jars, *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": session.LOOPBACK}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def test_a_stage_is_submitted_as_a_file(node: Node, tmp_path: Path) -> None:
    skip_because(None if LONG else "one more Java takes 15 s: `make chaos` submits it, `make compat` a job")
    config = node.config(tmp_path / "out", "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 7)
    done = submit(str(ROOT / "pipeline" / "bronze.py"), *written(config, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tables.sink(config, "bronze", ["offset"]).num_rows == 7
    assert '"query": "bronze", "batch": 0, "rows": 7' in done.stdout  # JSON, because the output is piped


def test_the_whole_program_is_found_by_its_file_too(tmp_path: Path) -> None:
    """The test runs what spark-submit of main.py runs, without the minute that Spark takes."""
    command = [sys.executable, str(ROOT / "pipeline" / "main.py"), "config", "--bootstrap", "kafka:9092"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert 'bootstrap_servers = "kafka:9092"' in done.stdout, done.stderr


@pytest.mark.compat
def test_the_last_line_says_what_went_wrong_and_few_stand_before_it(node: Node, tmp_path: Path) -> None:
    config = node.config(tmp_path / "out", "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 7)
    node.drop_before(config.kafka.events, 5)
    expired = ("--set", f'source.starting_offsets={{"{config.kafka.events}":{{"0":2}}}}')
    command = [sys.executable, "-m", "ottla.pipeline", "run", "bronze", *written(config, tmp_path), *expired]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("ottla-pipeline: offsets that were to be read are gone"), done.stderr
    assert "source.fail_on_data_loss = false" in lines[-1] and len(lines) <= LINES_MAX, done.stderr
    assert "Traceback" in (tmp_path / "out" / "error.log").read_text()
    assert "\tat org.apache.spark" in (tmp_path / "out" / "spark.log").read_text()
