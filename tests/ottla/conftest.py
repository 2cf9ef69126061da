"""One node for the tests of the command line, started as a user starts it.

OTTLA_TEST_BOOTSTRAP names another cluster to use, for example one of Apache Kafka, to check that both respond in the same way.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS_MAX = 30
COMMAND_SECONDS_MAX = 60


@dataclass
class Cli:
    """Runs `ottla` against one cluster."""

    bootstrap: str
    #: The port of the node's admin listener; 0 if the cluster was given.
    admin_port: int = 0
    #: The value of XDG_STATE_HOME with which `ottla dev` was started.
    state: str = ""
    names: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Finished:
        with patch.dict(os.environ, {"OTTLA_BOOTSTRAP": self.bootstrap, "NO_COLOR": "1"}):
            return run_here(*arguments, stdin=stdin)

    def ok(self, *arguments: str, stdin: str | bytes = "") -> str:
        """Return the output of a command that must not fail."""
        done = self(*arguments, stdin=stdin)
        assert done.code == 0, f"ottla {' '.join(arguments)}: exit code {done.code}\n{done.err}"
        return done.out

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        """Return the JSON lines that a command prints."""
        return [json.loads(line) for line in self.ok(*arguments, "-o", "json").splitlines()]

    def topic(self, *, partitions: int = 1) -> str:
        """A new topic."""
        name = f"cli-{os.getpid()}-{next(self.names)}"
        self._admin.create_topics([NewTopic(name, partitions)])[name].result(COMMAND_SECONDS_MAX)
        return name

    @cached_property
    def _admin(self) -> AdminClient:
        """Return an admin client, for the steps of a test that are not its subject: it needs no process."""
        return AdminClient({"bootstrap.servers": self.bootstrap})


@dataclass
class Finished:
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()


def run_here(*arguments: str, stdin: str | bytes = "") -> Finished:
    """Run `ottla` in the test's own process: to start an interpreter takes longer than most commands."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with tempfile.TemporaryFile("w+b") as file:
        file.write(stdin.encode() if isinstance(stdin, str) else stdin)
        file.seek(0)
        given = io.TextIOWrapper(file, "utf-8")
        with patch.multiple(sys, stdin=given, stdout=out, stderr=err):
            code = main(arguments)
            out.flush()
        given.detach()
    raw = out.buffer
    assert isinstance(raw, io.BytesIO)
    return Finished(code, raw.getvalue(), err.getvalue())


def command(*arguments: str) -> list[str]:
    """Return the command line for a process, for tests of signals and pipes."""
    return [sys.executable, "-m", "ottla", *arguments]


@pytest.fixture(scope="session", autouse=True)
def _no_contexts_of_who_runs_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have commands look for contexts in an empty folder: a context of the developer would be used, or change a message."""
    with patch.dict(os.environ, {"XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("configuration"))}):
        yield


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    if given := os.environ.get("OTTLA_TEST_BOOTSTRAP"):
        yield Cli(given)
        return
    folder = tmp_path_factory.mktemp("dev")
    # Some records have timestamps of 2023: the first check of the retention, after 30 s, would delete them in the middle of a
    # test.
    without_retention = ("--override", f"log.initial.task.delay.ms={24 * 3_600_000}")
    # Kafka's shortest session of a group is 6 s, and some tests wait for the end of one.
    short_sessions = ("--override", "group.min.session.timeout.ms=1000")
    options = ("--json", *without_retention, *short_sessions)
    arguments = command("dev", "--nodes", "1", "--base-port", "0", "--dir", str(folder), *options)
    state = str(folder / "state")
    environment = {**os.environ, "XDG_STATE_HOME": state}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as node:
        assert node.stdout is not None
        line = node.stdout.readline()
        assert line, f"ottla dev ended with {node.wait()}"
        try:
            status = json.loads(line)
            yield Cli(status["bootstrap"], status["nodes"][0]["admin"], state)
        finally:
            node.send_signal(signal.SIGINT)
            assert node.wait(STOP_SECONDS_MAX) == 0
