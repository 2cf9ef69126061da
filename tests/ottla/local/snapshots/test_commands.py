"""`ottla snapshot` of a running node: what it does, and what it rejects before it changes anything."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.failures import Failure
from ottla.local.snapshots import copying, layout, taking
from ottla.local.snapshots.placing import place_fork
from ottla.local.snapshots.raised_epochs import UNKNOWN_ELECTIONS
from ottla.local.snapshots.set_backs import FILE
from ottla.storage.directories.log_dirs import LOCK
from ottla.testing import Cluster
from tests.ottla.conftest import run_here
from tests.ottla.local.snapshots.test_fence import HOLDER, ended, started

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, directory=str(tmp_path_factory.mktemp("cluster") / "c")) as cluster:
        cluster.topic("stock", seed=[("apples", "3")])
        yield cluster


def snapshot(cluster: Cluster, *words: str) -> str:
    done = run_here("snapshot", *words, "--dir", cluster.directory)
    assert done.code == 0, done.err
    return done.out


def refusal(cluster: Cluster | str, *words: str) -> str:
    directory = cluster if isinstance(cluster, str) else cluster.directory
    done = run_here("snapshot", *words, "--dir", directory)
    assert done.code in (1, 2), done.out
    return done.err


def leftovers(cluster: Cluster) -> list[str]:
    return [
        name for name in os.listdir(Path(cluster.directory, layout.FOLDER)) if name.startswith(".") and name != LOCK
    ]


def test_a_cluster_is_restored_to_what_it_was_and_goes_on(cluster: Cluster) -> None:
    snapshot(cluster, "create", "before")
    cluster.write("stock", [("apples", "0")])
    assert "in use by process" in refusal(cluster, "restore", "before", "--yes")
    cluster.stop(1)
    snapshot(cluster, "restore", "before", "--yes")
    cluster.start(1)
    assert [each.value for each in cluster.records("stock")] == [b"3"]
    cluster.write("stock", [("apples", "2")])
    cluster.restart(1)
    assert len(cluster.records("stock", 2)) == 2
    rows = [json.loads(line) for line in snapshot(cluster, "list", "-o", "json").splitlines()]
    assert [row["snapshot"] for row in rows] == ["before"]
    snapshot(cluster, "delete", "before", "--yes")
    assert "there is no snapshot before" in refusal(cluster, "delete", "before")


def test_to_restore_what_was_lost_by_a_restore_says_that_tables_have_to_be_made_again(tmp_path: Path) -> None:
    """The table has the records from before they were lost, and would take them again."""
    with Cluster(1, directory=str(tmp_path / "c")) as cluster:
        cluster.topic("stock", seed=["1"])
        cluster.topic("orders", configs={"ottla.table.format": "delta"})
        cluster.stop(1)
        for name in ("monday", "tuesday"):
            snapshot(cluster, "create", name)
            time.sleep(0.01)  # their times are in milliseconds
        said = list[tuple[str, bool]]()
        for name in ("tuesday", "monday", "monday", "tuesday"):
            done = run_here("snapshot", "restore", name, "--yes", "--dir", cluster.directory)
            assert done.code == 0, done.err
            said.append((name, "the tables of orders would have rows twice" in done.err))
    assert said == [("tuesday", False), ("monday", False), ("monday", False), ("tuesday", True)]
    Path(cluster.directory, FILE).write_text("{")
    assert "is damaged" in refusal(cluster, "restore", "monday", "--yes")


def test_epochs_are_raised_far_when_the_metadata_that_was_reached_is_lost(tmp_path: Path) -> None:
    with Cluster(1, directory=str(tmp_path / "c")) as cluster:
        cluster.topic("stock", seed=["1"])
        cluster.stop(1)
        snapshot(cluster, "create", "monday")
        shutil.rmtree(Path(cluster.directory, "node-1", "data", "__cluster_metadata-0"))
        snapshot(cluster, "restore", "monday", "--yes")
        cluster.start(1)
        (topic,) = cluster.metadata(["stock"]).topics
        assert topic.partitions[0].leader_epoch >= UNKNOWN_ELECTIONS
        assert [each.value for each in cluster.records("stock")] == [b"1"]


def test_names_and_directories_that_cannot_be_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    Path(layout.part_of(cluster.directory, "killed")).mkdir(parents=True)
    snapshot(cluster, "create", "once", "--dry-run")
    snapshot(cluster, "create", "once")
    assert leftovers(cluster) == []
    assert "there is a snapshot once already" in refusal(cluster, "create", "once")
    assert "cannot be the name" in refusal(cluster, "create", "../other")
    assert "there is no snapshot twice" in refusal(cluster, "restore", "twice")
    assert "not the directory of a local cluster" in refusal(str(tmp_path), "create", "once")
    assert not list(tmp_path.iterdir())


def test_while_a_snapshot_is_taken_another_one_is_refused(cluster: Cluster) -> None:
    folder = Path(cluster.directory, layout.FOLDER)
    folder.mkdir(exist_ok=True)
    holder = started(HOLDER, folder)
    try:
        assert "another snapshot" in refusal(cluster, "create", "second")
    finally:
        ended(holder)


def test_a_node_that_was_killed_is_in_the_snapshot_as_it_was_left_and_recovered_there(cluster: Cluster) -> None:
    cluster.write("stock", [("figs", "7")])
    wanted = len(cluster.records("stock"))
    cluster.kill(1)
    with cluster.snapshot() as taken, taken.fork() as fork:
        assert taken.about.fence_ms < 1, "there is nothing to stop"
        assert len(fork.records("stock", wanted)) == wanted
    cluster.start(1)


def test_a_disk_that_fills_leaves_nothing_of_the_snapshot_and_the_node_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str, begin: int, end: int, *, gently: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    with monkeypatch.context() as patched:
        patched.setattr(copying, "copy_range", full)
        assert "the disk is full" in refusal(cluster, "create", "much")
    with monkeypatch.context() as patched:
        patched.setattr(taking, "SPARE_BYTES", 1 << 60)
        assert "must stay free" in refusal(cluster, "create", "much")
    assert leftovers(cluster) == []
    cluster.write("stock", [("pears", "1")])


def test_a_damaged_snapshot_is_neither_restored_nor_forked(cluster: Cluster, tmp_path: Path) -> None:
    snapshot(cluster, "create", "damaged")
    path = Path(layout.path_of(cluster.directory, "damaged"))
    log = max((path / "node-1" / "data" / "stock-0").glob("*.index"), key=lambda file: file.stat().st_size)
    log.write_bytes(log.read_bytes() + b"x" * 8)
    assert "is damaged" in refusal(cluster, "restore", "damaged", "--yes")
    with pytest.raises(Failure, match="is damaged"):
        place_fork(str(path), str(tmp_path / "fork"))
    assert not (tmp_path / "fork").exists()
    (path / layout.ABOUT).write_text("{}")
    assert "is damaged" in refusal(cluster, "restore", "damaged", "--yes")
    done = run_here("snapshot", "list", "--dir", cluster.directory)
    assert done.code == 0 and "is damaged" in done.err, "the others are listed nevertheless"


def test_a_restore_that_was_interrupted_is_completed_before_the_cluster_starts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(cluster, "create", "whole")
    wanted = len(cluster.records("stock"))
    cluster.write("stock", [("plums", "9")])
    cluster.stop(1)
    real = os.rename

    def fails(source: str, target: str) -> None:
        if ".restoring" in source:
            raise OSError(errno.EIO, "Input/output error", source)
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails)
        assert "restoring stopped halfway" in refusal(cluster, "restore", "whole", "--yes")
    done = run_here("dev", "--dir", cluster.directory, "--base-port", "0")
    assert "was being restored" in done.err
    snapshot(cluster, "restore", "whole", "--yes")
    cluster.start(1)
    assert len(cluster.records("stock")) == wanted


def test_a_fork_of_a_cluster_that_runs_serves_its_data_under_another_cluster_id(cluster: Cluster) -> None:
    expected = {each.value for each in cluster.records("stock")}
    command = [sys.executable, "-m", "ottla", "fork", "--dir", cluster.directory, "--base-port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        done = run_here("consume", "stock", "-b", ready["bootstrap"], "-o", "json")
        found = {json.loads(line)["value"].encode() for line in done.out.splitlines()}
        meta = Path(ready["nodes"][0]["dir"], "data", "meta.properties").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert found == expected
    own = Path(cluster.directory, "cluster.properties").read_text().splitlines()[0]
    assert own.startswith("cluster.id=") and own not in meta
    assert process.returncode == 0
    assert leftovers(cluster) == []


@pytest.mark.chaos
def test_a_fork_of_a_cluster_whose_voters_are_records_has_a_quorum_of_its_own_and_so_has_a_restored_one(
    tmp_path: Path,
) -> None:
    with Cluster(2, directory=str(tmp_path / "source")) as source:
        source.topic("stock", seed=["1"])
        assert run_here("feature", "upgrade", "kraft.version=1", "-b", source.bootstrap).code == 0
        snapshot(source, "create", "dynamic")
        with source.snapshot() as taken, taken.fork() as fork:  # the records of its voters have the source's ports
            assert [record.value for record in fork.records("stock")] == [b"1"]
    snapshot(source, "restore", "dynamic", "--yes")
    with Cluster(2, directory=source.directory) as again:
        assert [record.value for record in again.records("stock")] == [b"1"]
