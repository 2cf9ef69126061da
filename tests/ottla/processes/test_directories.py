"""The owners of the data in the directories of a machine's processes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.cli.shims import storage
from ottla.processes.directories import check_directories, cluster_id_of
from ottla.processes.plan import PlannedProcess, plan
from ottla.server.config.key import ConfigError
from ottla.storage.directories.log_dirs import MetaProperties, write_meta_properties
from ottla.storage.files import OsFiles
from tests.ottla.processes.test_plan import BASE

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def machine(directory: Path, count: int, **changes: str) -> list[PlannedProcess]:
    changed = {name.replace("_", "."): text for name, text in changes.items()}
    return plan(BASE | {"log.dirs": str(directory)} | changed, count, "h")


def formatted(path: Path, node_id: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    write_meta_properties(OsFiles(), str(path), MetaProperties(CLUSTER, node_id, bytes(15) + b"\x99"))


def refusal(nodes: list[PlannedProcess]) -> str:
    with pytest.raises(ConfigError) as refused:
        check_directories(OsFiles(), nodes, {"log.dirs": "server.properties"})
    assert "server.properties" in str(refused.value)
    return f"{refused.value}; {refused.value.what_to_try}"


def test_processes_find_the_directories_of_last_time_and_their_cluster(tmp_path: Path) -> None:
    nodes = machine(tmp_path, 2)
    check_directories(OsFiles(), nodes, {})
    new = cluster_id_of(OsFiles(), nodes, Random(1))
    assert len(new) == 22
    for name, node_id in (("controller", 1), ("broker-1", 1001), ("broker-2", 1002)):
        formatted(tmp_path / name, node_id)
    check_directories(OsFiles(), nodes, {})
    assert cluster_id_of(OsFiles(), nodes, Random(1)) == CLUSTER
    assert cluster_id_of(OsFiles(), machine(tmp_path, 2, cluster_id="mine"), Random(1)) == "mine"
    check_directories(OsFiles(), machine(tmp_path, 3), {})  # a third directory is added


def test_directories_are_formatted_for_all_processes_and_the_first_users_for_the_controller(tmp_path: Path) -> None:
    properties = BASE | {"log.dirs": str(tmp_path / "data")}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    scram = "SCRAM-SHA-256=[name=alice,password=secret]"
    words = ["format", "-t", CLUSTER, "-c", str(file), "--processes", "2", "--add-scram", scram]
    assert storage.main(words) == 0
    found = {path.parent.name for path in tmp_path.glob("data/*/meta.properties")}
    assert found == {"controller", "broker-1", "broker-2"}
    assert [path.parent.name for path in tmp_path.glob("data/*/bootstrap.checkpoint")] == ["controller"]
    assert b"alice" in (tmp_path / "data/controller/bootstrap.checkpoint").read_bytes()
    nodes = machine(tmp_path / "data", 2)
    check_directories(OsFiles(), nodes, {})
    assert cluster_id_of(OsFiles(), nodes, Random(1)) == CLUSTER


def test_data_of_another_node_id_is_refused(tmp_path: Path) -> None:
    formatted(tmp_path / "broker-1", 2001)
    said = refusal(machine(tmp_path, 1))
    assert "broker-1 belongs to node 2001, and broker-1 is node 1001" in said and "node.id of last time" in said


def test_data_of_a_single_process_is_refused(tmp_path: Path) -> None:
    formatted(tmp_path, 1)
    assert "data of node 1, which was a single process; a single process again" in refusal(machine(tmp_path, 2))


def test_fewer_brokers_than_have_data_are_refused(tmp_path: Path) -> None:
    formatted(tmp_path / "broker-3", 1003)
    (tmp_path / "broker-4").mkdir()
    said = refusal(machine(tmp_path, 2))
    assert "data of broker-3, more brokers than are to be started" in said and "as many processes as last time" in said
