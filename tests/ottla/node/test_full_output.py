"""A node and `ottla dev` end in order even if standard error is a file on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.needs import skip_because

FULL = Path("/dev/full")


def run(code: str, tmp_path: Path) -> tuple[int, list[str]]:
    """Run Python code with all output on a full disk; it appends to the file `said`.

    Return its exit code and the contents of that file.
    """
    skip_because(None if FULL.exists() else f"there is no {FULL} here")
    said = tmp_path / "said"
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", f"said = {str(said)!r}\n{code}"],
            stdout=full,
            stderr=full,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""},
        )
    return ended.returncode, said.read_text().splitlines() if said.exists() else []


def test_a_forked_node_does_not_go_on_with_its_parents_code(tmp_path: Path) -> None:
    code = """
import os
from ottla.processes.children import live
def run():
    print("a line that is still in the buffer")
    return 7
pid = os.fork()
if pid == 0:
    try:
        live(run)
    finally:
        open(said, "a").write("the child goes on\\n")
open(said, "a").write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\\n")
"""
    assert run(code, tmp_path)[1] == ["7"]


def test_the_reason_of_an_end_that_cannot_be_written_does_not_keep_a_node_from_its_stop(tmp_path: Path) -> None:
    code = """
from ottla.node.process import _explain
from ottla.storage.errors import failure_of
_explain(failure_of("/data", OSError(28, "No space left on device")))
open(said, "a").write("it stops\\n")
"""
    assert run(code, tmp_path)[1] == ["it stops"]


def test_the_end_of_one_node_that_cannot_be_written_does_not_end_the_others(tmp_path: Path) -> None:
    code = """
from types import SimpleNamespace
from ottla.cli.commands.dev import watch
nodes = [
    SimpleNamespace(id=number, ended=False, process=SimpleNamespace(returncode=1, poll=lambda: 1))
    for number in (1, 2)
]
open(said, "a").write(f"{watch(nodes)} {[node.ended for node in nodes]}\\n")
"""
    assert run(code, tmp_path)[1] == ["1 [True, True]"]
