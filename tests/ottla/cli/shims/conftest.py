"""Kafka's tools in the test's own process, against the node of the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ottla.cli.shims.recorded import Said, run_ours
from tests.ottla.conftest import Cli

Play = Callable[..., Said]


@pytest.fixture
def play(cli: Cli) -> Play:
    """Return a function that runs a tool with the node's address."""

    def run(name: str, *arguments: str, stdin: str = "") -> Said:
        return run_ours(name, ["--bootstrap-server", cli.bootstrap, *arguments], stdin)

    return run
