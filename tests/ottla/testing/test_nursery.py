"""The process that forks nodes: how long a start takes, and what happens when this process, or a node, ends."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ottla.testing import Cluster
from ottla.testing.inside.faults import NodeFaults
from ottla.testing.nursery import ANSWER_SECONDS_MAX, ForkedNode, Nursery
from tests.broker.conftest import eventually
from tests.ottla.conftest import ROOT

pytestmark = pytest.mark.timeout(120)
#: The time until one node serves: on a quiet machine it is 0.1 s. The imports alone would take half a second.
START_CPU_SECONDS_MAX = 0.3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as running:
        yield running


def test_a_start_takes_a_fraction_of_a_second_of_processor(cluster: Cluster) -> None:
    taken = []
    for _ in range(3):
        cluster.kill(1)
        cluster.start(1)
        times = psutil.Process(cluster.pid(1)).cpu_times()
        taken.append(times.user + times.system)
    assert min(taken) < START_CPU_SECONDS_MAX


def test_a_node_is_watched_by_a_test_that_holds_thousands_of_sockets() -> None:
    """The call `select` accepts no descriptor from 1,024 on: a node that was killed during a flood of connections could not be stopped."""
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1_100)
    os.close(reading)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    node = ForkedNode(os.getpid(), high, -1, -1, control)
    assert node.poll() is None
    os.write(writing, b"7")
    assert (node.wait(10), node.poll()) == (7, 7)
    os.close(writing)
    theirs.close()


def test_the_exit_code_of_a_node_is_that_of_its_process(cluster: Cluster) -> None:
    process = cluster.nodes[1].process
    assert process is not None and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    cluster.stop(1)
    assert process.wait(0) == 0
    cluster.start(1)
    killed = cluster.nodes[1].process
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(30) == -signal.SIGKILL
    cluster.start(1)


def test_a_node_that_has_ended_while_its_nursery_has_not_said_so_yet_is_ended_without_a_failure() -> None:
    """On a quiet machine two of three tests failed in this way at the end of their clusters."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    exit_fd, unwritten = os.pipe()
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with control, theirs, open(unwritten, "w") as exit_code:
        node = ForkedNode(ended.pid, exit_fd, -1, -1, control)
        node.terminate()
        node.kill()
        exit_code.write("-9")
        exit_code.flush()
        assert node.wait(5) == -signal.SIGKILL


def test_a_node_that_ends_before_it_has_taken_its_faults_is_not_waited_for() -> None:
    """A node that was paused, and was replaced meanwhile, stops by itself as soon as it is resumed."""
    exit_fd, unwritten = os.pipe()
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with control, open(unwritten, "w") as exit_code:
        node = ForkedNode(1, exit_fd, -1, -1, control)
        with theirs:
            exit_code.write("0")
            exit_code.flush()
            began = time.monotonic()
            node.spoil(NodeFaults())
            assert time.monotonic() - began < ANSWER_SECONDS_MAX / 2
        node.spoil(NodeFaults())
        assert node.wait(5) == 0


def test_a_property_that_cannot_be_ends_the_start_with_the_node_s_own_words() -> None:
    with (
        pytest.raises(RuntimeError, match=r"node 1 did not start: .*num\.partitions"),
        Cluster(1, num_partitions="many"),
    ):
        pass


def test_other_environments_have_other_nurseries_and_the_name_of_the_test_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Nursery.here()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    assert Nursery.here() is here
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "ERROR")
    other = Nursery.here()
    assert other is not here
    with Cluster(1) as quiet:
        assert "INFO" not in quiet.log(1)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it was running when that was asked, and no longer when its status was read
        return True


def test_a_killed_nursery_ends_its_nodes_and_the_next_cluster_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_OF_ITS_OWN", "1")
    with Cluster(1) as cluster:
        process = psutil.Process(cluster.pid(1))
        parent = process.parent()
        assert parent is not None
        parent.kill()
        eventually(lambda: not cluster.is_running(1), "the end of the node to be seen")
        eventually(lambda: has_ended(process), "its end")
    with Cluster(1) as cluster:
        cluster.topic("again", seed=["x"])


def spawned(nursery: Nursery, directory: Path) -> ForkedNode:
    """Start something that is no node: it ends at once, with the usage of `ottla start`."""
    with (directory / "output").open("wb") as output:
        return nursery.spawn(["start", "--no-such-option"], output, str(directory), NodeFaults())


def test_a_nursery_that_was_killed_is_said_to_be(tmp_path: Path) -> None:
    nursery = Nursery()
    nursery._process.kill()
    with pytest.raises(RuntimeError, match="has ended: SIGKILL"):
        spawned(nursery, tmp_path)
    nursery.close()


def test_a_test_that_holds_thousands_of_sockets_may_begin_a_nursery(tmp_path: Path) -> None:
    """In the nursery its socket has the same number, and the nursery ended: `select` accepts none from 1,024 on."""
    held = [os.dup(0) for _ in range(1_100)]
    try:
        nursery = Nursery()
        assert nursery._socket.fileno() >= 1_024
        assert spawned(nursery, tmp_path).wait(30) != 0
    finally:
        for each in held:
            os.close(each)
    nursery.close()


def test_a_fork_that_fails_is_one_nodes_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that forks continues: later there may be room again."""
    code = (
        "import errno, os, sys\nfrom ottla.testing.inside import nursery\nreal = os.fork\n"
        "def full():\n    os.fork = real\n    raise OSError(errno.EAGAIN, 'full')\n"
        "os.fork = full\nnursery.main(int(sys.argv[1]))"
    )
    begin = subprocess.Popen

    def with_a_full_machine(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        return begin([command[0], "-P", "-c", code, command[-1]], **more)

    with monkeypatch.context() as patch:
        patch.setattr("ottla.testing.nursery.subprocess.Popen", with_a_full_machine)
        nursery = Nursery()
    with pytest.raises(OSError, match="cannot: Resource temporarily unavailable"):
        spawned(nursery, tmp_path)
    assert spawned(nursery, tmp_path).wait(30) != 0
    nursery.close()


def test_no_node_and_no_nursery_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\nfrom ottla.testing import Cluster\n"
        "with Cluster(2, directory=sys.argv[1]) as cluster:\n"
        "    print(os.getpid(), *map(cluster.pid, cluster.nodes), flush=True)\n    cluster.pause(2)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        pids = list(map(int, parent.stdout.readline().split()))
        children = [psutil.Process(pid) for pid in pids[1:]] + psutil.Process(pids[0]).children()
        time.sleep(0.2)
        parent.kill()
    eventually(lambda: not any(each.is_running() for each in children), "all to end", seconds=60)


def test_a_cluster_as_in_production_has_no_faults() -> None:
    with Cluster(1, spoilable=False) as cluster:
        parent = psutil.Process(cluster.pid(1)).parent()
        assert parent is not None and parent.pid == os.getpid()
        with pytest.raises(RuntimeError, match="as in production"):
            cluster.advance(days=1)
        cluster.pause(1)
        cluster.resume(1)
        cluster.topic("t", seed=["x"])
