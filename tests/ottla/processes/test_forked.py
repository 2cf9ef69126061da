"""Nodes that are forks of the process that starts them: their files, their exit codes, and what they share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import skip_because
from tests.ottla.conftest import ROOT

pytestmark = pytest.mark.timeout(120)

#: It runs in a separate process, because pytest has threads, and a process that forks must have none.
PARENT = """
import json, os, subprocess
from ottla.processes import start
from ottla.node.parent import LOG_FILE_VARIABLE
from ottla.processes.children import fork

def born(main, *arguments):
    start.main = main or start.main
    with open("output", "ab") as output:
        return fork(start.imported, arguments, output)
"""


def parent(directory: Path, program: str) -> list[str]:
    """Return the lines printed by a process that starts nodes with `born`. The nodes write to the file `output`."""
    skip_because(None if sys.platform == "linux" else "on other systems nodes are processes of their own")
    words = [sys.executable, "-c", PARENT + program]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=directory, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_exit_codes_and_output_are_those_of_a_process_of_its_own(tmp_path: Path) -> None:
    said = parent(
        tmp_path,
        """
for words in ["--help"], ["missing.properties"], ["--no-such-option"]:
    child = born(None, *words)
    print(child.process.wait(60), os.read(child.ready_fd, 1))
""",
    )
    assert said == ["0 b''", "1 b''", "2 b''"]
    written = (tmp_path / "output").read_text()
    assert "Usage: ottla start" in written and "cannot read missing.properties" in written
    assert "unrecognized arguments: --no-such-option" in written and "Traceback" not in written


def test_a_node_has_no_file_of_its_parent_but_two_pipes_and_is_no_service_of_its_own(tmp_path: Path) -> None:
    (code,) = parent(
        tmp_path,
        """
os.environ[LOG_FILE_VARIABLE] = "of the parent"
def main(arguments):
    files = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")]
    line = json.dumps([files, LOG_FILE_VARIABLE in os.environ, os.getpgrp() == os.getpid()])
    os.write(1, line.encode() + b"\\n")  # print() writes the line and its end one after the other, and the other node between them
    return 7
kept = os.pipe()
first, second = born(main), born(main)
first.process.wait(60)
print(second.process.wait(60))
""",
    )
    assert code == "7"
    output = str(tmp_path / "output")
    for line in Path(output).read_text().splitlines():
        files, has_log, leads_group = json.loads(line)
        assert sorted(each.partition("[")[0] for each in files) == sorted(
            ["/dev/null", output, output, "pipe:", "pipe:"]
        )
        assert (has_log, leads_group) == (False, True)


def test_a_failure_in_a_node_is_its_own_and_never_returns_to_the_code_of_its_parent(tmp_path: Path) -> None:
    said = parent(
        tmp_path,
        """
def main(arguments):
    raise RuntimeError("of the node")
try:
    print(born(main).process.wait(60))
finally:
    print("parent")
""",
    )
    assert said == ["1", "parent"]
    assert "RuntimeError: of the node" in (tmp_path / "output").read_text()


def test_a_node_that_runs_on_is_waited_for_until_the_time_is_over_and_can_be_killed(tmp_path: Path) -> None:
    said = parent(
        tmp_path,
        """
import time
process = born(lambda arguments: time.sleep(60)).process
try:
    process.wait(0.05)
except subprocess.TimeoutExpired:
    print("runs", process.poll())
process.kill()
print(process.wait(60), process.poll())
process.kill()
""",
    )
    assert said == ["runs None", "-9 -9"]


def test_a_parent_with_another_thread_starts_nodes_as_processes_of_their_own(tmp_path: Path) -> None:
    said = parent(
        tmp_path,
        """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(born(lambda arguments: 7, "--no-such-option").process.wait(60))
""",
    )
    assert said == ["2"], "the parent's `main` would have given 7"
