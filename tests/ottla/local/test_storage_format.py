"""kafka-storage format: the first voters of a dynamic quorum, the features of a new cluster, and wrong arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.shims.storage import main
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import DIRECTORY
from ottla.controller.raft.snapshots import SnapshotReader, file_name, read_bootstrap
from ottla.controller.raft.voters import VoterSet
from ottla.local.storage_format import CannotFormat, feature_levels, read_initial_controllers
from ottla.protocol.internal_topics.metadata_records import decode_record
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.releases import RELEASES, Advertised
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.files import OsFiles

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
ONE, TWO = "1@127.0.0.1:9093:JEXY6aqzQY-32P5TStzaFg", "2@127.0.0.1:9094:J1CIaj2qeYvUf_RBjfxxGQ"
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
STATIC = {**CONTROLLER, "controller.quorum.voters": "1@127.0.0.1:9093"}
BROKER = {**CONTROLLER, "process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}


def run(directory: Path, properties: dict[str, str], *options: str) -> int:
    config = directory / "server.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in {**properties, "log.dirs": str(directory / "data")}.items()))
    return main(["format", "-t", CLUSTER_ID, "-c", str(config), *options])


def first_voters(directory: Path) -> VoterSet | None:
    first = OffsetAndEpoch(0, 0)
    control = SnapshotReader(OsFiles(), f"{directory}/data/{DIRECTORY}/{file_name(first)}", first).load_control()
    assert control.kraft_version == 1
    return control.voters


def levels(directory: Path) -> dict[str, int]:
    records = read_bootstrap(OsFiles(), f"{directory}/data")
    assert records is not None
    return {record.name: record.feature_level for record, _ in map(decode_record, records)}


def test_a_controller_that_stands_alone_is_its_own_first_voter(tmp_path: Path) -> None:
    assert run(tmp_path, CONTROLLER, "--standalone") == 0
    meta = read_meta_properties(OsFiles(), f"{tmp_path}/data")
    voters = first_voters(tmp_path)
    assert meta is not None and voters is not None
    assert [(voter.key.id, voter.key.directory_id) for voter in voters] == [(1, meta.directory_id)]
    assert voters.endpoints(1) == (("CONTROLLER", "127.0.0.1", 9093),)


def test_the_list_of_the_first_controllers_says_which_directory_is_whose(tmp_path: Path) -> None:
    assert run(tmp_path, CONTROLLER, "--initial-controllers", f"{ONE},{TWO}") == 0
    meta = read_meta_properties(OsFiles(), f"{tmp_path}/data")
    assert meta is not None and meta.directory_id is not None
    assert uuid_to_str(meta.directory_id) == "JEXY6aqzQY-32P5TStzaFg"
    assert first_voters(tmp_path) == read_initial_controllers(f"{ONE},{TWO}", "CONTROLLER")


def test_a_controller_that_joins_later_has_no_voters_yet(tmp_path: Path) -> None:
    assert run(tmp_path, CONTROLLER, "--no-initial-controllers") == 0
    assert not (tmp_path / "data" / DIRECTORY).exists()


def test_a_cluster_begins_with_the_features_of_the_release_that_was_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path, CONTROLLER, "--standalone", "-r", "4.0", "-f", "transaction.version=1") == 0
    assert levels(tmp_path) == {"metadata.version": 25, "group.version": 1, "transaction.version": 1}


@pytest.mark.parametrize(
    ("properties", "options", "why"),
    [
        (CONTROLLER, (), "you must specify one of the following: --standalone, --initial-controllers, or --no-initial"),
        (STATIC, ("--standalone",), "You cannot specify controller.quorum.voters and format the node with"),
        (BROKER, ("--standalone",), "You can only use --standalone on a controller."),
        (CONTROLLER, ("--initial-controllers", "1@127.0.0.1:9093"), "wants id@host:port:directory-id"),
        (CONTROLLER, ("--initial-controllers", f"{ONE},{ONE}"), "names node 1 twice"),
        (CONTROLLER, ("--standalone", "-r", "0.9"), "Unknown metadata.version '0.9'. Supported"),
        (CONTROLLER, ("--standalone", "-f", "share.version=9"), "No feature:share.version with feature level 9"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], properties: dict[str, str], options: tuple[str, ...], why: str
) -> None:
    assert run(tmp_path, properties, *options) == 1
    assert why in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_next_releases_metadata_is_formatted_where_it_is_enabled() -> None:
    with pytest.raises(CannotFormat, match=r"metadata.version can be 7 to 33 here, not 34"):
        feature_levels("4.5", [])
    unstable = Advertised(unstable_features=True)
    assert (
        feature_levels(None, [], unstable)["metadata.version"]
        == 34
        == feature_levels("4.5", [], unstable)["metadata.version"]
    )
    with pytest.raises(CannotFormat, match=r"metadata.version can be 7 to 30 here, not 33"):
        feature_levels("4.4", [], Advertised(RELEASES["4.3.1"]))


def test_a_feature_that_needs_a_newer_metadata_version_is_refused() -> None:
    with pytest.raises(CannotFormat, match=r"depends on metadata.version level 23"):
        feature_levels("3.9", ["eligible.leader.replicas.version=1"])
