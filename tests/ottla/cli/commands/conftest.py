"""The command `ottla` against the node of the session, or without any node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ottla.conftest import Cli, Finished

Run = Callable[..., Finished]


@pytest.fixture
def here(cli: Cli) -> Run:
    """Return a function that runs `ottla` against the node of the session, and returns the result even if the command
    failed.
    """
    return cli.__call__
