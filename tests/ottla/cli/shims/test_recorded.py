"""Each of our tools prints and returns what Apache Kafka's tool of that name did: recorded sessions, played at one node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.ottla.cli.shims.recorded import NODE, SESSIONS, play, read_session, run_ours


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Cluster(1, per_node={1: NODE}) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_our_tool_says_what_kafkas_said(path: Path, server: str) -> None:
    for step, lines in play(read_session(path), run_ours, server):
        assert [f"$ {step.command}", *lines] == [f"$ {step.command}", *step.lines]
