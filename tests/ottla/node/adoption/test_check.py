"""The command `ottla adopt` reads directories that Apache Kafka 3.7.2 wrote, and changes none of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.controller.metadata.snapshots import writing_snapshot
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.snapshots import SnapshotWriter, file_name, write_bootstrap
from ottla.node.adoption.check import Checked, changes, check, facts
from ottla.node.adoption.directories import CannotAdopt
from ottla.protocol.internal_topics.metadata_records import (
    AccessControlEntryRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    ZkMigrationStateRecord,
    encode_record,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.work import do_now
from ottla.server.config.node_config import NodeConfig
from ottla.storage.directories.log_dirs import LOCK
from ottla.storage.files import OsFiles
from tests.controller.images import same_content
from tests.ottla.node.adoption.recorded import CLUSTER_ID, KILLED, STOPPED, contents, unpacked

NOW = 1_800_000_000_000
METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"
#: The properties with which Kafka ran: its own file wins over values that could be derived.
SERVER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


def checked(*paths: Path, properties: dict[str, str] | None = None) -> Checked:
    return check([str(path) for path in paths], properties, random.Random(1), NOW)


def refused(*paths: Path, properties: dict[str, str] | None = None) -> str:
    """Return the reasons. Nothing may have changed."""
    before = [contents(path) for path in paths if path.is_dir()]
    with pytest.raises(CannotAdopt) as refusal:
        checked(*paths, properties=properties)
    assert [contents(path) for path in paths if path.is_dir()] == before
    return str(refusal.value)


def add_metadata(directory: Path, *records: bytes) -> None:
    """Return batches for the end of the metadata log, one for each record, as a leader of another release would write them."""
    offset = checked(directory).metadata.log_end_offset
    with (directory / METADATA_LOG).open("ab") as log:
        for i, record in enumerate(records):
            log.write(build_batch([(None, record, NOW)], base_offset=offset + i, leader_epoch=1))


def encoded(record: MetadataRecord, version: int = 0) -> bytes:
    return encode_record(record, version)


@pytest.mark.parametrize("how", [STOPPED, KILLED])
def test_all_that_kafka_wrote_is_found_and_no_byte_is_changed(tmp_path: Path, how: str) -> None:
    directory = unpacked(tmp_path, how)
    before = contents(directory)
    found = facts(checked(directory))
    assert contents(directory) == before
    assert {
        name: found[name]
        for name in (
            "cluster_id", "node_id", "roles", "clean_shutdown", "metadata.version", "features", "voters", "topics", "partitions_here",
            "partitions_in_transaction", "transactions", "transactions_open", "groups", "committed_offsets", "unknown_coordinator_records",
        )
    } == {
        "cluster_id": CLUSTER_ID, "node_id": 1, "roles": ["broker", "controller"], "clean_shutdown": how == STOPPED,
        "metadata.version": "3.7-IV4", "features": {}, "voters": [1], "topics": 4, "partitions_here": 5, "partitions_in_transaction": 1,
        "transactions": {"CompleteAbort": 1, "Ongoing": 1}, "transactions_open": 1, "groups": {"classic": 1}, "committed_offsets": 1,
        "unknown_coordinator_records": 0,
    }  # fmt: skip
    assert not [line for line in changes(checked(directory)) if line.startswith("recovery:")]
    assert {"gzip", "lz4", "none", "snappy", "zstd"} <= checked(directory).logs.codecs.keys()


def test_minimal_properties_go_on_at_the_registered_addresses_and_let_nothing_expire(tmp_path: Path) -> None:
    properties = checked(unpacked(tmp_path)).properties
    config = NodeConfig(properties)
    broker, controller = config.endpoints
    assert [(each.name, each.host) for each in config.endpoints] == [
        ("PLAINTEXT", "127.0.0.1"),
        ("CONTROLLER", "127.0.0.1"),
    ]
    assert config.voters == ((1, "127.0.0.1", controller.port),) and broker.port != controller.port
    assert config["log.retention.ms"] == -1 and config["log.retention.bytes"] == -1
    assert properties["ottla.advertised.release"] == "4.3.1", "Apache Kafka 4.3.1 could not go on with newer features"


def test_kafkas_file_is_taken_as_it_is(tmp_path: Path) -> None:
    given = {**SERVER, "log.dirs": str(unpacked(tmp_path)), "log.retention.hours": "5"}
    assert checked(properties=given).properties == {**given, "ottla.advertised.release": "4.3.1"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"node.id": "2", "controller.quorum.voters": "2@localhost:9093"}, "the file is of node 2, and the directories are of node 1"),
        ({"cluster.id": "4L6g3nShT-eMCtK--X86sw"}, f"of cluster 4L6g3nShT-eMCtK--X86sw, and the directories are of cluster {CLUSTER_ID}"),
        ({"log.dirs": "/elsewhere"}, "the file names the directories /elsewhere"),
        (
            {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092", "controller.quorum.voters": "2@localhost:9093"},
            "the node is a voter of the quorum",
        ),
    ],
)  # fmt: skip
def test_a_file_of_another_node_is_refused(tmp_path: Path, wrong: dict[str, str], reason: str) -> None:
    directory = unpacked(tmp_path)
    assert reason in refused(directory, properties={**SERVER, "log.dirs": str(directory), **wrong})


def test_files_that_kafka_creates_empty_are_no_damage(tmp_path: Path) -> None:
    directory = unpacked(tmp_path, KILLED)
    (directory / "t-1" / "leader-epoch-checkpoint").write_text("")
    assert (directory / "recovery-point-offset-checkpoint").read_bytes() == b""
    assert not [line for line in changes(checked(directory)) if line.startswith("recovery:")]


def test_a_metadata_log_that_begins_with_a_snapshot_says_the_same_as_the_whole_log(tmp_path: Path) -> None:
    """The metadata log of a cluster begins with a snapshot once retention has deleted the segments before it."""
    directory = unpacked(tmp_path)
    whole = checked(directory)
    metadata, end = whole.metadata, whole.metadata.log_end_offset
    snapshot = OffsetAndEpoch(end, metadata.image.epoch)
    path = directory / "__cluster_metadata-0" / file_name(snapshot)
    writer = SnapshotWriter(OsFiles(), str(path), snapshot, now_ms=NOW)
    do_now(writing_snapshot(metadata.image, writer))
    writer.freeze()
    for segment_file in path.parent.glob("0*0.*"):
        segment_file.unlink()
    (path.parent / f"{end:020d}.log").touch()
    before = contents(directory)
    found = checked(directory)
    assert contents(directory) == before
    at_snapshot = {"metadata_log": [end, end], "last_snapshot": f"{end}-{metadata.image.epoch}"}
    assert facts(found) == facts(whole) | at_snapshot
    assert same_content(found.metadata.image, metadata.image) and found.properties == whole.properties

    path.write_bytes(path.read_bytes()[:-10])
    assert "the metadata log in" in refused(directory)


# -- What a kill and a medium leave ------------------------------------------------------------------------------------


def test_a_batch_that_was_partly_written_before_a_kill_is_cut_and_said(tmp_path: Path) -> None:
    directory = unpacked(tmp_path, KILLED)
    log = directory / "t-0" / "00000000000000000000.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])
    before = contents(directory)
    said = "\n".join(changes(checked(directory)))
    assert f"recovery: Corruption found in segment {log}, truncating to offset 54" in said
    assert contents(directory) == before


def test_a_flushed_log_that_has_lost_its_end_is_refused(tmp_path: Path) -> None:
    directory = unpacked(tmp_path, STOPPED)
    log = directory / "t-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-10])
    reason = refused(directory)
    assert str(log.parent) in reason and "Remedy: where another replica has the partition" in reason


def test_a_damaged_metadata_log_is_refused(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    (directory / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    assert "the metadata log in" in refused(directory)


def test_a_partition_without_its_metadata_would_be_set_aside(tmp_path: Path) -> None:
    directory = unpacked(tmp_path, KILLED)
    (directory / "t-1" / "partition.metadata").unlink()
    said = "\n".join(changes(checked(directory)))
    assert "t-1 have no files here" in said


def test_the_directory_of_a_topic_that_was_deleted_meanwhile_is_a_stray(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    shutil.copytree(directory / "t-0", directory / "gone-0")
    (directory / "gone-0" / "partition.metadata").write_text("version: 0\ntopic_id: 4L6g3nShT-eMCtK--X86sw\n")
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (directory / ".kafka_cleanshutdown").unlink()
    assert f"{directory}/gone-0" in "\n".join(changes(checked(directory)))


# -- What is not adopted -----------------------------------------------------------------------------------------------


def of_zookeeper(directory: Path) -> None:
    (directory / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=x\n")


def without_identity(directory: Path) -> None:
    (directory / "meta.properties").unlink()


def with_damaged_identity(directory: Path) -> None:
    (directory / "meta.properties").write_text("version=1\nnode.id=one\ncluster.id=x\n")


def without_metadata_log(directory: Path) -> None:
    shutil.rmtree(directory / "__cluster_metadata-0")


def unfinished_migration(directory: Path) -> None:
    add_metadata(directory, encoded(ZkMigrationStateRecord(zk_migration_state=2)))


def migrating_broker(directory: Path) -> None:
    add_metadata(directory, encoded(RegisterBrokerRecord(broker_id=9, is_migrating_zk_broker=True), 2))


def newer_metadata_version(directory: Path) -> None:
    add_metadata(directory, encoded(FeatureLevelRecord(name="metadata.version", feature_level=99)))


def unknown_feature(directory: Path) -> None:
    add_metadata(directory, encoded(FeatureLevelRecord(name="queues.version", feature_level=1)))


def older_metadata_version(directory: Path) -> None:
    add_metadata(directory, encoded(FeatureLevelRecord(name="metadata.version", feature_level=3)))


def unknown_record(directory: Path) -> None:
    add_metadata(directory, b"\x01\x63\x00")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_zookeeper, "of broker 7 of a Kafka with ZooKeeper: migrate that cluster to KRaft with Kafka 3.9 first"),
        (without_identity, "has no meta.properties: it is no log directory, or was never formatted"),
        (with_damaged_identity, "meta.properties is damaged"),
        (without_metadata_log, "has no metadata log"),
        (unfinished_migration, "from ZooKeeper is not finished"),
        (migrating_broker, "from ZooKeeper is not finished; brokers 9 are still of ZooKeeper"),
        (newer_metadata_version, "is of a newer Kafka: metadata.version is 99, and 4.4-IV2 is the highest known here"),
        (unknown_feature, "is of a newer Kafka: feature queues.version is not known here"),
        (older_metadata_version, "3.3-IV3 is the lowest that Kafka 4 and Ottla know"),
        (unknown_record, "is of a newer Kafka: its log has a metadata record 99 v0"),
    ],
)
def test_what_is_refused_is_said_before_anything_is_changed(
    tmp_path: Path, change: Callable[[Path], None], reason: str
) -> None:
    directory = unpacked(tmp_path)
    change(directory)
    assert reason in refused(directory)


def test_directories_that_are_missing_files_or_above_log_directories_are_refused(tmp_path: Path) -> None:
    unpacked(tmp_path / "node-1")
    (tmp_path / "file").touch()
    reasons = refused(tmp_path / "missing", tmp_path / "file", tmp_path)
    assert f"there is no directory {tmp_path}/missing: is its disk mounted?" in reasons
    assert f"{tmp_path}/file is a file" in reasons
    assert f"{tmp_path} is no log directory, but has some (node-1)" in reasons


def test_directories_of_two_clusters_or_nodes_and_copies_are_refused(tmp_path: Path) -> None:
    one, two = unpacked(tmp_path / "one"), unpacked(tmp_path / "two")
    assert "the same directory.id: one is a copy of the other" in refused(one, two)
    (two / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    reasons = refused(one, two)
    assert f"of different clusters ({one} of {CLUSTER_ID}, {two} of 4L6g3nShT-eMCtK--X86sw)" in reasons
    assert f"of different nodes ({one} of 1, {two} of 2)" in reasons


def test_a_data_directory_that_was_forgotten_is_missed(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    more = bytes(range(16))
    add_metadata(directory, encoded(RegisterBrokerRecord(broker_id=1, log_dirs=[more], broker_epoch=5), 3))
    assert "node 1 has one more log directory, with directory.id AAECAwQFBgcICQoLDA0ODw" in refused(directory)


def test_the_properties_of_a_node_with_access_control_entries_are_not_guessed(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    add_metadata(directory, encoded(AccessControlEntryRecord(id=bytes(range(16)), resource_type=2, resource_name="t", pattern_type=3,
                                                             principal="User:a", host="*", operation=2, permission_type=3)))  # fmt: skip
    found = checked(directory)
    assert not found.properties and "no request would be checked: give Kafka's own file" in found.missing[0]
    assert checked(properties={**SERVER, "log.dirs": str(directory)}).metadata.image.acls.entries


def test_a_node_whose_topics_have_remote_storage_is_not_adopted_without_it(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    topic = next(iter(checked(directory).metadata.image.topics)).name
    remote = ConfigRecord(resource_type=2, resource_name=topic, name="remote.storage.enable", value="true")
    add_metadata(directory, encoded(remote))
    found = checked(directory)
    assert not found.properties
    assert f"{topic} have segments in remote storage, and its place is not in the metadata: give Kafka's own" in str(
        found.missing
    )
    given = {**SERVER, "log.dirs": str(directory)}
    with pytest.raises(CannotAdopt, match="the file does not say remote"):
        checked(properties=given)
    given |= {"remote.log.storage.system.enable": "true", "rsm.config.dir": str(tmp_path / "store")}
    assert any(text.startswith(f"old segments of {topic} are read") for text in changes(checked(properties=given)))


def test_a_directory_of_kafka_3_6_gets_its_id_at_the_first_start(tmp_path: Path) -> None:
    directory = unpacked(tmp_path)
    add_metadata(directory, encoded(RegisterBrokerRecord(broker_id=1, broker_epoch=5), 1))
    (directory / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
    assert f"{directory} gets a directory.id (KIP-858), as at a start of Kafka 3.7" in set(changes(checked(directory)))


def test_a_directory_in_use_is_refused(tmp_path: Path, held_by_another_process: Callable[[Path], None]) -> None:
    directory = unpacked(tmp_path)
    held_by_another_process(directory / LOCK)
    assert f"{directory} is in use by a running node" in refused(directory)


def test_a_bootstrap_checkpoint_does_not_make_a_controller(tmp_path: Path) -> None:
    """Kafka 3.7 writes this file into the directory of every node."""
    directory = unpacked(tmp_path)
    state = directory / "__cluster_metadata-0" / "quorum-state"
    state.write_text(state.read_text().replace('"voterId":1', '"voterId":8'))
    write_bootstrap(OsFiles(), str(directory), [], NOW)
    given = {**SERVER, "log.dirs": str(directory), "process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
    given["controller.quorum.voters"] = "8@elsewhere:9093"
    assert checked(properties=given).roles == ("broker",)
