"""Forks of a snapshot: separate clusters with the same data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.local.snapshots import fence
from ottla.testing import Cluster
from ottla.testing.inside.disk import Disk, SpoiledFiles
from ottla.testing.snapshots import ClusterSnapshot

pytestmark = pytest.mark.timeout(120)


def fill(cluster: Cluster) -> None:
    cluster.topic("stock", partitions=2, seed=[("apples", "3"), ("pears", "4")])
    consumer = cluster.consumer("stock", group_id="shop")
    for _ in range(2):
        consumer.commit(consumer.poll(30), asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def snapshot() -> Iterator[ClusterSnapshot[Cluster]]:
    with Cluster(1, num_partitions="2") as cluster:
        fill(cluster)
        with cluster.snapshot() as taken:
            cluster.start(1)
            cluster.write("stock", ["after the snapshot"])
            assert len(cluster.records("stock", 3)) == 3
            yield taken


def test_forks_have_the_records_and_offsets_of_the_snapshot_and_do_not_see_each_other(
    snapshot: ClusterSnapshot[Cluster],
) -> None:
    with snapshot.fork() as one, snapshot.fork() as other:
        assert one.bootstrap != other.bootstrap
        one.write("stock", ["of one"])
        assert sorted(each.value or b"" for each in one.records("stock")) == [b"3", b"4", b"of one"]
        assert sorted(each.value or b"" for each in other.records("stock")) == [b"3", b"4"]
        consumer = one.consumer("stock", group_id="shop")
        message = consumer.poll(30)
        consumer.close()
        assert message is not None and message.value() == b"of one"  # the group continues at its offsets


def test_a_fork_has_the_settings_of_its_cluster_and_stands_faults(snapshot: ClusterSnapshot[Cluster]) -> None:
    with snapshot.fork() as fork:
        producer = fork.producer()
        producer.produce("made-by-a-producer", b"x")
        assert producer.flush(30) == 0
        assert len(fork.leaders("made-by-a-producer")) == 2
        fork.kill(1)
        fork.start(1)
        assert len(fork.records("made-by-a-producer", 1)) == 1


def test_a_snapshot_is_taken_again_when_the_nodes_did_not_stand_still_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, late = fence._wait_until_all_stand, ["once"]

    def wait(*arguments: Any) -> None:
        if late:
            raise fence.NotFenced(f"a process did not stop {late.pop()}")
        stopped(*arguments)

    monkeypatch.setattr(fence, "_wait_until_all_stand", wait)
    with Cluster(1) as cluster:
        cluster.topic("stock", seed=["apples"])
        with cluster.snapshot() as taken, taken.fork() as fork:
            assert [each.value for each in fork.records("stock", 1)] == [b"apples"]
    assert not late


def test_a_node_whose_disk_has_faults_does_not_write_to_what_a_snapshot_shares(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"records")
    os.link(tmp_path / "0.log", tmp_path / "of the snapshot")
    SpoiledFiles(Disk()).map(str(tmp_path / "0.log"), 0, True).write(0, b"RECORDS")
    assert (tmp_path / "of the snapshot").read_bytes() == b"records"
    assert (tmp_path / "0.log").read_bytes() == b"RECORDS"
