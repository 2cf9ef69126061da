"""Snapshots under load: transactions and groups are all or nothing in each fork; long in `make chaos`."""

import time
from pathlib import Path

import pytest

from ottla.cli.snapshots.rewinding import rewind_fork
from ottla.testing import Cluster
from tests.chaos import snapshots
from tests.effort import LONG
from tests.ottla.conftest import run_here


@pytest.mark.timeout(600)
def test_forks_of_a_cluster_under_load_have_whole_transactions_and_all_that_was_acknowledged() -> None:
    taken, nodes, count = (12, 3, 200_000) if LONG else (1, 1, 30_000)
    verdict = snapshots.run(snapshots=taken, count=count, seed=1, nodes=nodes)
    assert verdict.problems == []
    assert len(verdict.fences_ms) == taken
    assert len(verdict.rewound) == taken
    assert all(0 < copied < count for copied in verdict.committed), "they are of the middle of the copying"


@pytest.mark.timeout(120)
def test_a_replica_that_has_moved_since_the_time_is_where_it_was_with_its_records(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        cluster.topic("stock", replicas=1, seed=["1", "2"])
        was = cluster.leaders("stock")[0]
        pause_ms = 50  # the times of records and of the metadata are of other processes
        time.sleep(pause_ms / 1000)
        time_ms = time.time_ns() // 1_000_000
        time.sleep(pause_ms / 1000)
        cluster.write("stock", ["3"])
        moved = run_here("partition", "move", "stock:0", "--to", str(3 - was), "-b", cluster.bootstrap)
        assert moved.code == 0, moved.err
        with cluster.snapshot() as taken:
            fork = taken.fork(str(tmp_path / "fork"))
            rewind_fork(fork.directory, time_ms)
            with fork:
                assert fork.leaders("stock") == {0: was}
                assert [record.value for record in fork.records("stock")] == [b"1", b"2"]
