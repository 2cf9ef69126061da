"""Each of Ottla's tools has the same output and exit code as Apache Kafka's tool of that name: recorded sessions are played at
one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.ottla.cli.shims.recorded import SESSIONS, node_properties, play, read_session, run_ours
from tests.ports import free_base_port


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    port = free_base_port()
    with Cluster(1, base_port=port, per_node={1: node_properties(port)}) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_our_tool_says_what_kafkas_said(path: Path, server: str) -> None:
    for step, lines in play(read_session(path), run_ours, server):
        assert [f"$ {step.command}", *lines] == [f"$ {step.command}", *step.lines]
