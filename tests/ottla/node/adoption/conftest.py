"""A process that holds the lock of a directory, as a running node does: POSIX locks do not exclude the process that took them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held_by_another_process() -> Iterator[Callable[[Path], None]]:
    """A function that makes another process lock a file until the end of the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def hold(path: Path) -> None:
        command = [sys.executable, "-S", "-c", HOLD, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"held\n"

    yield hold
    for process in processes:
        process.communicate()
