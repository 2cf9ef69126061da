"""Snapshots under load: transactions and groups are all or nothing in each fork; long in `make chaos`."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.local.snapshots.rewinding import rewind_fork
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos import snapshots
from tests.effort import LONG
from tests.ottla.conftest import run_here


@pytest.mark.chaos
@pytest.mark.timeout(3_600 if LONG else 600)
def test_forks_of_a_cluster_under_load_have_whole_transactions_and_all_that_was_acknowledged() -> None:
    taken, nodes, count = (12, 3, 200_000) if LONG else (1, 1, 30_000)
    verdict = snapshots.run(snapshots=taken, count=count, seed=1, nodes=nodes)
    assert verdict.problems == []
    assert len(verdict.fences_ms) == taken
    assert len(verdict.rewound) == taken
    assert all(0 < copied < count for copied in verdict.committed), "they are of the middle of the copying"


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_replica_that_has_moved_since_the_time_is_where_it_was_with_its_records(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        cluster.topic("stock", replicas=1, seed=["1", "2"])
        was = cluster.leaders("stock")[0]
        pause_ms = 50  # longer than a tick: records and metadata get their times from different processes
        time.sleep(pause_ms / 1000)
        time_ms = time.time_ns() // 1_000_000
        time.sleep(pause_ms / 1000)
        cluster.write("stock", ["3"])
        moved = run_here("move", "run", "stock:0", "--to", str(3 - was), "-b", cluster.bootstrap)
        assert moved.code == 0, moved.err
        with cluster.snapshot() as taken:
            fork = taken.fork(str(tmp_path / "fork"))
            rewind_fork(fork.directory, time_ms)
            with fork:
                # The node that serves may know the leader some milliseconds before the node that is asked.
                eventually(lambda: fork.leaders("stock") == {0: was}, "the leader of then to lead")
                assert [record.value for record in fork.records("stock")] == [b"1", b"2"]


def connected(pid: int, ports: set[int]) -> bool:
    """Return whether the process has a connection to one of these ports of this machine."""
    try:
        links = [os.readlink(each.path) for each in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return False  # the process has ended, or has closed a file meanwhile
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[9] in inodes and int(row[2].rpartition(":")[2], 16) in ports for row in rows)


@pytest.mark.timeout(120)
def test_no_node_of_a_fork_connects_to_a_broker_of_the_cluster_whose_addresses_its_metadata_has() -> None:
    with Cluster(3) as cluster:
        cluster.topic("stock", partitions=6, seed=[str(number) for number in range(100)])
        ports = {node.port for node in cluster.nodes.values()}
        with cluster.snapshot() as taken:
            assert sum(map(len, taken.about.addresses.values())) == 3
            for _ in range(2):  # without detours three of four forks had such connections
                fork = taken.fork()
                with ThreadPoolExecutor() as pool:
                    done = threading.Event()
                    looking = pool.submit(_look, fork, ports, done)
                    with fork:
                        assert len(fork.records("stock", 100)) == 100
                        done.set()
                        assert looking.result() == set()


def _look(fork: Cluster, ports: set[int], done: threading.Event) -> set[int]:
    found: set[int] = set()
    while not done.wait(0.002):
        running = {number: node.process.pid for number, node in fork.nodes.items() if node.process is not None}
        found |= {number for number, pid in running.items() if connected(pid, ports)}
    return found
