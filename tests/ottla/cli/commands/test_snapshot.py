"""`ottla snapshot` and the contents of a cluster's folder: damaged snapshots, those of another version, and wrong names."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED, OK, USAGE
from ottla.local.snapshots.layout import ABOUT, CONTENTS, About
from tests.ottla.conftest import Finished, run_here

TAKEN_MS = 1_700_000_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return the folder of a stopped cluster of one node, with two snapshots."""
    data = tmp_path / "node-1" / "data"
    data.mkdir(parents=True)
    (tmp_path / "cluster.properties").write_text("cluster.id=c\nnodes=1\n")
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    for taken_ms, name in ((TAKEN_MS + 1000, "a-newer"), (TAKEN_MS, "b-older")):
        make(tmp_path, name, taken_ms)
    return tmp_path


def make(cluster: Path, name: str, taken_ms: int) -> Path:
    folder = cluster / "snapshots" / name
    (folder / "node-1" / "data").mkdir(parents=True)
    (folder / "node-1" / "data" / "meta.properties").write_text("x")
    (folder / CONTENTS).write_text("1 node-1/data/meta.properties\n")
    about = About(name, str(cluster), "c", 1, taken_ms, 4.0, 1, 0, 1, {})
    (folder / ABOUT).write_text(json.dumps(asdict(about)))
    return folder


def snapshot(cluster: Path, *words: str) -> Finished:
    return run_here("snapshot", *words, "--dir", str(cluster))


def names(cluster: Path) -> list[object]:
    return [json.loads(line)["snapshot"] for line in snapshot(cluster, "list", "-o", "json").out.splitlines()]


def test_they_are_listed_in_the_order_of_their_times(cluster: Path) -> None:
    assert names(cluster) == ["b-older", "a-newer"]
    done = snapshot(cluster, "list")
    assert done.out.splitlines()[0].split() == [
        "SNAPSHOT", "TAKEN", "NODES", "FILES", "LINKED-BYTES", "COPIED-BYTES", "FENCE-MS",
    ]  # fmt: skip


def test_one_that_is_damaged_is_named_and_hides_no_other(cluster: Path) -> None:
    (cluster / "snapshots" / "b-older" / ABOUT).write_text("{")
    done = snapshot(cluster, "list", "-o", "json")
    assert (done.code, len(done.out.splitlines())) == (OK, 1)
    assert done.err == f"the snapshot {cluster}/snapshots/b-older is damaged: {ABOUT} is not what was written\n"


def test_one_of_a_newer_ottla_is_named_with_its_version(cluster: Path) -> None:
    file = cluster / "snapshots" / "b-older" / ABOUT
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))
    for words in (["delete", "b-older", "--yes"], ["restore", "b-older", "--yes"]):
        done = snapshot(cluster, *words)
        assert done.code == FAILED and "is of version 2, and this Ottla reads 1" in done.err
    assert file.exists()


def test_one_that_is_damaged_can_be_deleted(cluster: Path) -> None:
    """A damaged snapshot takes as much room as a whole one, and nothing else deletes it."""
    folder = cluster / "snapshots" / "b-older"
    (folder / ABOUT).write_text("{")
    asked = snapshot(cluster, "delete", "b-older", "--dry-run")
    assert (asked.code, folder.exists()) == (OK, True)
    done = snapshot(cluster, "delete", "b-older", "--yes")
    assert (done.code, folder.exists()) == (OK, False), done.err


def test_a_dry_run_changes_nothing_and_says_what_would_be(cluster: Path) -> None:
    for words, said in (
        (["create", "third"], f"take the snapshot third of {cluster}"),
        (["restore", "b-older"], f"restore {cluster} to 2023-11-14"),
        (["delete", "b-older"], "delete the snapshot b-older"),
    ):
        done = snapshot(cluster, *words, "--dry-run")
        assert done.code == OK and said in done.err, done.err
    assert names(cluster) == ["b-older", "a-newer"]


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", "", "x" * 101])
@pytest.mark.parametrize("verb", ["create", "restore", "delete"])
def test_a_name_cannot_lead_out_of_the_folder(cluster: Path, verb: str, name: str) -> None:
    done = snapshot(cluster, verb, name, *([] if verb == "create" else ["--yes"]))
    assert done.code == USAGE and f"{name!r} cannot be the name of a snapshot" in done.err


def test_a_snapshot_whose_files_are_not_all_there_is_not_restored(cluster: Path) -> None:
    (cluster / "snapshots" / "b-older" / "node-1" / "data" / "meta.properties").unlink()
    done = snapshot(cluster, "restore", "b-older", "--yes")
    assert done.code == FAILED and "node-1/data/meta.properties is missing" in done.err
    assert (cluster / "node-1" / "data" / "meta.properties").read_text().startswith("version=1")


def test_a_folder_that_is_no_cluster_has_no_snapshots(tmp_path: Path) -> None:
    for words in (["list"], ["create", "a"]):
        done = snapshot(tmp_path, *words)
        assert done.code == FAILED and "it has no cluster.properties" in done.err
    done = snapshot(tmp_path, "delete", "a", "--yes")
    assert done.code == FAILED and f"there is no snapshot a in {tmp_path}/snapshots" in done.err


def test_the_folder_may_be_that_of_the_environment(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_DIR", str(cluster))
    assert len(run_here("snapshot", "list", "-o", "json").out.splitlines()) == 2
    monkeypatch.delenv("OTTLA_DIR")
    done = run_here("snapshot", "list")
    assert done.code == USAGE and "--dir is missing" in done.err
