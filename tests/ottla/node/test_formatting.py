"""The directories that a node formats itself when it starts, and the message if a person has to do it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.node.formatting import NotFormatted, is_alone, prepare
from ottla.server.config.node_config import NodeConfig
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.errors import InconsistentLogDirectory
from ottla.storage.files import OsFiles

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
#: The properties of config/server.properties in Kafka 4.3.1 that describe the quorum.
STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
OF_THREE = {
    **STOCK,
    "controller.quorum.bootstrap.servers": "",
    "controller.quorum.voters": "1@localhost:9093,2@b:9093,3@c:9093",
}
DYNAMIC = {**STOCK, "controller.quorum.bootstrap.servers": "localhost:9093,b:9093,c:9093"}
BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "a:9093",
}


def start(properties: dict[str, str], *directories: Path, **more: str) -> str:
    """Do the first step of a start. The directories have the names in log.dirs."""
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = NodeConfig(properties | {"log.dirs": ",".join(map(str, directories))} | given)
    return prepare(OsFiles(), config, random.Random(1), 0)


def is_formatted(path: Path) -> bool:
    return read_meta_properties(OsFiles(), str(path)) is not None


def test_kafkas_stock_properties_make_a_quorum_of_this_node(tmp_path: Path) -> None:
    start(STOCK, tmp_path)
    assert is_formatted(tmp_path)
    assert [path.name for path in (tmp_path / "__cluster_metadata-0").iterdir()] == [
        "00000000000000000000-0000000000.checkpoint"
    ]


@pytest.mark.parametrize(
    ("quorum", "alone"),
    [
        ({"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}, True),
        ({"controller.quorum.bootstrap.servers": "127.0.0.1:9094"}, False),
        ({"controller.quorum.bootstrap.servers": "elsewhere:9093"}, False),
        ({"controller.quorum.bootstrap.servers": "localhost:9093,b:9093"}, False),
        ({"controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@x:9093"}, True),
        ({"controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@x:9093,2@y:9093"}, False),
    ],
)
def test_who_is_a_quorum_by_itself(quorum: dict[str, str], alone: bool) -> None:
    assert is_alone(NodeConfig(STOCK | quorum | {"log.dirs": "/nowhere"})) is alone


def test_a_voter_of_three_formats_nothing_and_names_the_command_with_an_id(tmp_path: Path) -> None:
    with pytest.raises(
        NotFormatted, match=r"format each of its controllers: ottla format FILE --cluster-id [\w-]{22}$"
    ):
        start(OF_THREE, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(NotFormatted) as refused:
        start(DYNAMIC, tmp_path, cluster_id=CLUSTER)
    new, back = "ottla format FILE --initial-controllers", "ottla format FILE --no-initial-controllers"
    assert new in str(refused.value) and back in str(refused.value), "both cases of an empty disk"
    assert start(OF_THREE, tmp_path, cluster_id=CLUSTER, ottla_format_empty_directories="true") == CLUSTER


def test_a_broker_needs_the_clusters_id(tmp_path: Path) -> None:
    with pytest.raises(
        NotFormatted, match=r"ottla format FILE --cluster-id ID\. The id is cluster\.id in meta\.properties"
    ):
        start(BROKER, tmp_path)
    assert not list(tmp_path.iterdir())
    assert start(BROKER, tmp_path, cluster_id=CLUSTER) == CLUSTER and is_formatted(tmp_path)


@pytest.mark.parametrize("flag", ["false", "true"])
def test_a_node_that_has_run_before_does_not_begin_a_new_metadata_log(tmp_path: Path, flag: str) -> None:
    """An unmounted disk, and a new directory that is named first, look the same."""
    old, new = tmp_path / "old", tmp_path / "new"
    start(STOCK, old)
    with pytest.raises(NotFormatted, match=f"the metadata log of this node is in {old}"):
        start(STOCK, new, old, ottla_format_empty_directories=flag)
    assert not list(new.iterdir())
    start(STOCK, old, new)
    assert is_formatted(new), "a new disk for data"
    with pytest.raises(NotFormatted, match="is a disk not mounted"):
        start(STOCK, tmp_path / "third", new, ottla_format_empty_directories=flag)


def test_the_directory_of_a_machine_with_processes_names_their_flag(tmp_path: Path) -> None:
    for name in ("controller", "broker-1"):
        start(STOCK, tmp_path / name)
    with pytest.raises(
        InconsistentLogDirectory, match=r"several nodes \(broker-1, controller\): start them with --processes"
    ):
        start(STOCK, tmp_path)


def test_a_directory_with_other_files_is_not_to_be_emptied(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InconsistentLogDirectory, match=r"\(notes.txt\): it is no log directory; check log.dirs$"):
        start(STOCK, tmp_path)


def test_a_directory_is_in_the_log_only_where_the_node_goes_on_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    good, bad, worse = tmp_path / "good", tmp_path / "file" / "bad", tmp_path / "file" / "worse"
    start(STOCK, bad, worse)
    start(STOCK, good)
    start(STOCK, bad, good)
    assert not [record for record in caplog.records if record.name.startswith("ottla.")], (
        "the start ends with this reason"
    )
    start(STOCK, good, bad)
    ours = [record for record in caplog.records if record.name.startswith("ottla.")]
    assert [record.args[0] for record in ours if record.args] == [str(bad)]
