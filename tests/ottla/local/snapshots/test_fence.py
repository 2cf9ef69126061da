"""The fence: processes that are stopped, and that run again whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ottla.client.failures import Failure
from ottla.local.snapshots import fence as fences
from ottla.local.snapshots.fence import fence, holders

SECONDS_MAX = 20.0
HOLDER = """
import sys, time
from ottla.storage.files import OsFiles
lock = OsFiles().lock(sys.argv[1] + "/.lock")
print("held", flush=True)
time.sleep(60)
"""
TAKER = f"""
import sys, time
from ottla.local.snapshots import fence as fences
fences.LIMIT_S = {SECONDS_MAX}
from ottla.local.snapshots.fence import fence
with fence([sys.argv[1]]):
    print("fenced", flush=True)
    time.sleep(60)
"""


def started(source: str, directory: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", source, str(directory)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not count as a snapshot that takes too long."""
    monkeypatch.setattr(fences, "LIMIT_S", SECONDS_MAX)
    monkeypatch.setattr(fences, "STOPPED_WITHIN_S", SECONDS_MAX)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = started(HOLDER, tmp_path)
    yield process
    ended(process)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def wait_until_it_runs(pid: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while state(pid) == "T":
        assert time.monotonic() < deadline, "it stands still for ever"
        time.sleep(0.01)


def wait_until_the_guard_has_ended() -> None:
    guard = fences.GUARD.encode()
    while any(guard in Path(f"/proc/{each.pid}/cmdline").read_bytes() for each in psutil.Process().children()):
        time.sleep(0.01)


def test_the_process_that_holds_the_lock_stands_still_inside_and_runs_afterwards(
    tmp_path: Path, node: subprocess.Popen[bytes]
) -> None:
    assert holders([str(tmp_path)]) == [node.pid]
    with fence([str(tmp_path)]) as found:
        assert state(node.pid) == "T"
    wait_until_it_runs(node.pid)
    assert found.pids == [node.pid]
    assert found.seconds > 0


def test_a_node_that_was_paused_before_stays_so(tmp_path: Path, node: subprocess.Popen[bytes]) -> None:
    os.kill(node.pid, signal.SIGSTOP)
    while state(node.pid) != "T":
        time.sleep(0.001)
    with fence([str(tmp_path)]) as found:
        assert found.pids == []
    assert state(node.pid) == "T"


def test_the_nodes_run_again_though_the_snapshot_is_killed_inside(
    tmp_path: Path, node: subprocess.Popen[bytes]
) -> None:
    taker = started(TAKER, tmp_path)
    assert state(node.pid) == "T"
    ended(taker)
    wait_until_it_runs(node.pid)


def test_a_snapshot_that_takes_too_long_is_none_and_the_nodes_run_meanwhile(
    tmp_path: Path, node: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "LIMIT_S", 0.05)
    with pytest.raises(Failure, match="were let go"), fence([str(tmp_path)]):
        wait_until_it_runs(node.pid)


@pytest.mark.parametrize("before", [True, False])
def test_nodes_that_were_let_go_while_they_were_being_stopped_are_no_fence(
    tmp_path: Path, node: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """After a pause of the machine the guard would not let the processes run a second time, however long the snapshot takes."""
    send = fences._signal

    def late(pid: int, number: int) -> None:
        if number == signal.SIGSTOP and before:
            wait_until_the_guard_has_ended()
        send(pid, number)
        if number == signal.SIGSTOP and not before:
            wait_until_the_guard_has_ended()

    monkeypatch.setattr(fences, "_signal", late)
    monkeypatch.setattr(fences, "LIMIT_S", 0.05)
    with pytest.raises(Failure, match="were let go"), fence([str(tmp_path)]):
        pytest.fail("it is no fence")
    wait_until_it_runs(node.pid)
