"""`ottla format` does the same as `kafka-storage format`, with the id of the file, and its errors say what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.__main__ import main
from ottla.cli.errors import OK, USAGE
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.files import OsFiles
from tests.needs import small_disk

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def node(folder: Path, **more: str) -> str:
    properties = {
        "process.roles": "broker,controller", "node.id": "1", "cluster.id": CLUSTER, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER", "controller.quorum.bootstrap.servers": "a:9093,b:9093,c:9093", "log.dirs": str(folder / "data"),
    } | {name.replace("_", "."): value for name, value in more.items()}  # fmt: skip
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items() if value))
    return str(file)


def test_a_directory_is_formatted_once_for_the_cluster_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = node(tmp_path)
    assert main(["format", file, "--no-initial-controllers"]) == OK
    assert "Formatting" in capsys.readouterr().err
    meta = read_meta_properties(OsFiles(), str(tmp_path / "data"))
    assert meta is not None and (meta.cluster_id, meta.node_id) == (CLUSTER, 1)
    assert main(["format", file, "--no-initial-controllers"]) == OK
    assert "already formatted" in capsys.readouterr().err
    assert read_meta_properties(OsFiles(), str(tmp_path / "data")) == meta, "it stays as it is"
    assert main(["format", node(tmp_path, cluster_id="AAAAAAAAT-eMCtK--X86sw"), "--no-initial-controllers"]) == USAGE
    assert f"but read {CLUSTER}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "options", "says"),
    [
        ({}, (), "--no-initial-controllers"),  # in a dynamic quorum the operator has to choose one of two options
        ({"cluster_id": ""}, ("--standalone",), "has no cluster.id"),
        ({}, ("--standalone", "--no-initial-controllers"), "exclude each other"),
        ({}, ("--standalone", "--users", "/no/such/file"), "cannot be read"),
        ({"node_id": ""}, ("--standalone",), "node.id"),
        ({}, ("--initial-controllers", "1@a"), "id@host:port:directory-id"),
        ({"log_dirs": "/proc/nowhere"}, ("--standalone",), "/proc/nowhere"),
    ],
)
def test_what_cannot_be_formatted_says_why_and_leaves_nothing(
    more: dict[str, str], options: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["format", node(tmp_path, **more), *options]) == USAGE
    assert says in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_directory_of_a_newer_version_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    newer = f"version=2\ncluster.id={CLUSTER}\nnode.id=1\n"
    (tmp_path / "data" / "meta.properties").write_text(newer)
    assert main(["format", node(tmp_path), "--standalone"]) == USAGE
    assert "start the newer one that wrote it. Do not format the directory" in capsys.readouterr().err
    assert (tmp_path / "data" / "meta.properties").read_text() == newer


def files_of(*folders: Path) -> set[str]:
    return {str(path) for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize("pages", [0, 1])
def test_a_full_disk_leaves_no_directory_formatted_and_the_command_can_be_run_again(
    pages: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of the last directory is full, or the disk of the metadata has room for only the first of its three files."""
    there = tmp_path / "there"
    (there / "lost+found").mkdir(parents=True)
    with small_disk(tmp_path, "64k") as disk:
        folders = [f"{there}", f"{tmp_path}/new", f"{disk}/data"]
        file = node(tmp_path, log_dirs=",".join(folders[::-1] if pages else folders))
        (disk / "other").write_bytes(bytes((16 - pages) * 4096))
        before = files_of(there, disk)
        assert main(["format", file, "--standalone"]) == USAGE
        said = capsys.readouterr().err
        assert "No space left on device. No directory was formatted: make room there, and run it again" in said
        assert f"{disk}/data" in said
        assert files_of(there, disk) == before and not (tmp_path / "new").exists()
        os.unlink(disk / "other")
        assert main(["format", file, "--standalone"]) == OK
        assert all((Path(folder) / "meta.properties").exists() for folder in folders)
