"""One node and one Spark session for all tests of the pipeline. If Spark cannot run, the tests are skipped with the reason."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import config as configuration
from ottla.pipeline import session
from ottla.pipeline.config import Config
from tests.needs import skip_because

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS_MAX = 30
#: A test's Spark lives for a minute: too short for Java's optimizing compiler and generated code to save time. The verification
#: of Spark's classes alone takes a fifth of the processor time.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
SHORT_LIVED = ("spark.shuffle_partitions=1", "spark.options.spark.sql.codegen.wholeStage=false")


def why_not() -> str | None:
    """Return the reason why Spark cannot run here."""
    problem = session.missing()
    if problem is None and session.jars_folder(Config()) is None:
        problem = "the connector's jars are not in build/spark-jars; fetch them: make spark-jars (needs Maven)"
    return problem


@dataclass
class Node:
    """The cluster's address and clients, and names that no test has used."""

    bootstrap: str
    #: Topics' tables are here.
    tables: str = ""
    names: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"t{os.getpid()}-{next(self.names)}"

    def topic(self, partitions: int = 2, *, name: str = "", **settings: str) -> str:
        from confluent_kafka.admin import NewTopic

        name = name or self.name()
        given = {key.replace("_", "."): value for key, value in settings.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, 1, config=given)]).values():
            future.result(20)
        return name

    @cached_property  # kept: a client that is garbage-collected takes its unanswered requests with it
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap})

    def send(self, topic: str, count: int, *, partition: int = 0, **given: Any) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        errors: list[object] = []
        given = {"partition": partition, "on_delivery": lambda error, message: errors.append(error), **given}
        for number in range(count):
            producer.produce(topic, **{"value": b"%d" % number, **given})
        assert producer.flush(20) == 0 and errors == [None] * count

    def drop_before(self, topic: str, offset: int) -> None:
        """Let partition 0 begin at this offset at once, as retention does."""
        from confluent_kafka import TopicPartition

        for future in self.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(20)

    def end(self, topic: str) -> int:
        """Return the offset after the last record of partition 0."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": topic})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)[1])
        finally:
            consumer.close()

    def config(self, folder: Path, *overrides: str) -> Config:
        """A configuration with its own topics, and everything else in the folder."""
        prefix = self.name()
        own = [f"kafka.{name}={prefix}.{name}" for name in ("events", "dead_letters", "pages", "sessions")]
        common = (
            f"kafka.bootstrap_servers={self.bootstrap}",
            f"pipeline.output={folder}",
            "pipeline.trigger=once",
            *own,
        )
        return configuration.load(None, (*common, *overrides))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("dev")
    command = [
        sys.executable,
        "-m",
        "ottla",
        "dev",
        "--nodes",
        "1",
        "--base-port",
        "0",
        "--dir",
        str(folder),
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"ottla dev ended with {process.wait()}"
        try:
            yield Node(json.loads(line)["bootstrap"], str(folder / "tables"))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_SECONDS_MAX) == 0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    skip_because(why_not())
    # A session reused by the stages keeps the first one's settings.
    output = f"pipeline.output={tmp_path_factory.mktemp('spark')}"
    before = signal.getsignal(signal.SIGINT)
    found = session.start(configuration.load(None, (*SHORT_LIVED, output)))
    signal.signal(signal.SIGINT, before)  # Spark's own handler would be that of all tests which this process runs later
    yield found
    found.stop()
