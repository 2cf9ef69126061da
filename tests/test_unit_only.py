"""`make unit` runs tests that need no socket and no process, and skips the others by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = """
import asyncio, socket, subprocess, sys
import pytest

@pytest.fixture(scope="module")
def node():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        yield process

def test_of_a_process(node): pass
def test_of_the_same_process(node): pass
def test_of_a_socket(): socket.socket().bind(("127.0.0.1", 0))
def test_of_a_server_in_a_task():
    async def serve():
        await asyncio.create_task(asyncio.start_server(print, "127.0.0.1", 0))
    asyncio.run(serve())
def test_of_neither():
    async def pair(): return socket.socketpair()
    asyncio.run(pair())
"""


def test_tests_that_ask_for_a_socket_or_a_process_are_left_out_of_the_unit_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.unit_only", "-p", "no:cacheprovider", "-rs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"1 passed, 4 skipped", done.stdout), done.stdout + done.stderr
    assert "subprocess.Popen is not for unit tests" in done.stdout
