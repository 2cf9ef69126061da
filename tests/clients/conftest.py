"""One node for all client programs of a module, started as users start it: `ottla dev`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

#: The interval in which members of the consumer protocol (KIP-848) send heartbeats, by which they learn of a rebalance: by
#: default 5 s.
SOONER = {"group.consumer.min.heartbeat.interval.ms": "250", "group.consumer.heartbeat.interval.ms": "250"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a new node."""
    command = [sys.executable, "-m", "ottla", "dev", "--nodes", "1", "--base-port", "0", "--json"]
    for name, value in SOONER.items():
        command += ["--override", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["bootstrap"]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the node did not stop cleanly"


@pytest.fixture
def topic() -> str:
    """Return a topic name of the test's own."""
    return f"t-{uuid.uuid4().hex[:12]}"
