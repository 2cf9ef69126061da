"""One node for all client programs of a module, started as users start it: `ottla dev`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a fresh node."""
    command = [sys.executable, "-m", "ottla.main", "dev", "--nodes", "1", "--base-port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["bootstrap"]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the node did not stop cleanly"


@pytest.fixture
def topic() -> str:
    """A topic name of the test's own."""
    return f"t-{uuid.uuid4().hex[:12]}"
