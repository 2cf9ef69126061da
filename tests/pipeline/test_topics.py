"""Before Spark is started, a user reads that a cluster does not exist or cannot be reached, or that topics do not exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("confluent_kafka", "fastavro")
pytest.importorskip("fastavro", reason="the extra `pipeline` is not installed: docs/INSTALL.md")

from ottla.pipeline import topics
from ottla.pipeline.config import load
from ottla.pipeline.errors import PipelineError
from ottla.testing import Cluster
from tests.pipeline.conftest import ROOT, Node


def test_an_address_without_a_listener(tmp_path: Path) -> None:
    """The program runs as a process, to test its output on the screen: one line."""
    command = [sys.executable, "-m", "ottla.pipeline", "run", "bronze", "--bootstrap", "127.0.0.1:1", "--output", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("ottla-pipeline: no broker answers at 127.0.0.1:1") and "kafka.bootstrap_servers" in line
    assert "Connection refused" in line


def test_an_address_without_a_port() -> None:
    with pytest.raises(PipelineError, match=r"'kafka' is not HOST:PORT.*write host:port"):
        topics.ensure(load(None, ("kafka.bootstrap_servers=kafka",)))


def test_a_cluster_that_advertises_a_wrong_address() -> None:
    with Cluster(1, advertised_listeners="PLAINTEXT://127.0.0.1:1") as cluster:
        config = load(None, (f"kafka.bootstrap_servers={cluster.bootstrap}",))
        with pytest.raises(PipelineError, match=r"advertises 127\.0\.0\.1:1 .*advertised\.listeners"):
            topics.ensure(config)


def test_a_broker_of_several_that_is_down_is_a_warning(node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    host, _, port = node.bootstrap.partition(":")
    topics.check_brokers(node.config(tmp_path), [(host, int(port)), ("127.0.0.1", 1)])
    assert "not every broker can be reached: 127.0.0.1:1" in capsys.readouterr().err


def test_a_topic_that_does_not_exist_and_one_that_is_nearly_meant(node: Node, tmp_path: Path) -> None:
    config = node.config(tmp_path)
    with pytest.raises(PipelineError, match="does not exist: missing-topic; create it"):
        topics.ensure(load(None, (f"kafka.bootstrap_servers={node.bootstrap}", "source.subscribe=missing-topic")))
    topics.ensure(config)
    mistyped = node.config(tmp_path, "source.subscribe=" + config.kafka.events.replace("events", "event"))
    with pytest.raises(PipelineError, match=rf"did you mean {config.kafka.events}\?"):
        topics.ensure(mistyped)


def test_a_partition_that_does_not_exist(node: Node, tmp_path: Path) -> None:
    topic = node.topic(2)
    topics.ensure(node.config(tmp_path, f'source.assign={{"{topic}":[0,1]}}'))
    with pytest.raises(PipelineError, match=r"partition 2 of .*, which has 2; its partitions are 0 to 1"):
        topics.ensure(node.config(tmp_path, f'source.assign={{"{topic}":[2]}}'))


def test_a_pattern_may_match_later(node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics.ensure(node.config(tmp_path, "source.subscribe_pattern=later.*"))
    assert "no topic matches later.* yet" in capsys.readouterr().err
    topics.ensure(node.config(tmp_path, r"source.subscribe_pattern=\p{Alpha}++"))  # Java's own form
    assert not capsys.readouterr().err
