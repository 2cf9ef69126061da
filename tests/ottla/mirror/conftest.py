"""Two clusters of one node each, and workers of a mirror between them, started as a user does it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from ottla.client.failures import Failure
from ottla.client.groups import describe_group
from ottla.testing import Cluster
from tests.ottla.conftest import ROOT, Finished, run_here

WAIT_S_MAX = 60
GROUP = "ottla-mirror.west.east"
NAMES = count()


@dataclass
class Mirror:
    """A mirror from `west` to `east`, of topics that no other test uses."""

    west: Cluster
    east: Cluster
    log: Path
    name: str = field(default_factory=lambda: f"m{next(NAMES)}")
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: Whether heartbeats are written and mirrored; most tests do not need them.
    heartbeats: bool = False

    def arguments(self, *options: str) -> list[str]:
        sides = ["-b", self.west.bootstrap, "--to", self.east.bootstrap]
        quiet = [] if self.heartbeats else ["--no-heartbeats"]
        return ["mirror", "run", "west", "east", *sides, "--topics", f"{self.name}.*", *quiet, *options]

    def once(self, *options: str, code: int = 0) -> Finished:
        """Mirror all present records."""
        done = run_here(*self.arguments("--once", *options))
        assert done.code == code, done.err
        return done

    def start(self, *options: str, session_ms: int = 10_000) -> subprocess.Popen[bytes]:
        """Start a worker.

        With a session of 1000 ms it replaces a killed worker within a second or two; but a worker that pauses on a busy machine
        then loses its lanes, too.
        """
        arguments = self.arguments("--session-timeout-ms", str(session_ms), "--refresh", "1", *options)
        with self.log.open("ab") as log:
            worker = subprocess.Popen([sys.executable, "-m", "ottla", *arguments], stderr=log, stdout=log, cwd=ROOT)
        self.workers.append(worker)
        return worker

    def stop(self) -> None:
        running = [worker for worker in self.workers if worker.poll() is None]
        for worker in running:
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(WAIT_S_MAX) for worker in running] == [0] * len(running), self.said()

    def said(self) -> str:
        """Return the lines that the workers have printed, without their progress."""
        return "".join(line for line in self.log.read_text().splitlines(True) if not line.startswith("{"))

    def until(self, passed: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not passed():
            assert time.monotonic() < deadline, f"{what} not within {WAIT_S_MAX} s\n{self.said()}"
            time.sleep(0.05)

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values that a reader of committed records finds in the target."""
        return [record.value for record in self.east.records(topic)]

    def members(self) -> int:
        """Return how many workers the group has."""
        return len(self.east._do(lambda cluster: describe_group(cluster, GROUP), WAIT_S_MAX).members)

    def positions(self, topic: str) -> dict[int, int]:
        """The position of each partition in the target's topic."""
        found = {}
        try:
            records = self.east.records("mm2-offsets.west.internal")
        except Failure:  # the first worker has only just started
            return {}
        for record in records:
            _, name = json.loads(record.key or b"")
            if name.get("topic") == topic:
                found[name["partition"]] = json.loads(record.value or b"")["offset"] + 1
        return found


def cluster() -> Cluster:
    """One node whose groups notice missing members soon."""
    return Cluster(1, group_min_session_timeout_ms="1000", group_initial_rebalance_delay_ms="0")


@pytest.fixture(scope="session")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with cluster() as west, cluster() as east:
        yield west, east


@pytest.fixture
def mirror(pair: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Mirror]:
    made = Mirror(*pair, tmp_path / "workers.log")
    yield made
    for worker in made.workers:
        if worker.poll() is None:
            worker.kill()
            worker.wait(WAIT_S_MAX)
