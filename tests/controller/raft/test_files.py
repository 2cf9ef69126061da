"""quorum-state and snapshot files: Kafka's forms, and what happens to damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.election_store import ElectionStore
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import Snapshots, SnapshotWriter, read_bootstrap, write_bootstrap
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.records.batch import crc32c
from ottla.protocol.work import do_now
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles

FILES = OsFiles()
DIRECTORY_ID = bytes(range(16))
VOTERS = VoterSet.of([Voter(ReplicaKey(1, DIRECTORY_ID), (QuorumEndpoint("CONTROLLER", "host", 9093),))])
SNAPSHOT = OffsetAndEpoch(120, 7)


# The contents are those that Apache Kafka 4.3.1 writes.
V0 = '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
V1 = '{"leaderId":-1,"leaderEpoch":4,"votedId":2,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'


@pytest.mark.parametrize(
    ("text", "kraft_version", "election"),
    [(V0, 0, ElectionState(1, 1, None)), (V1, 1, ElectionState(4, -1, ReplicaKey(2, DIRECTORY_ID)))],
)
def test_quorum_state_is_kafkas(tmp_path: Path, text: str, kraft_version: int, election: ElectionState) -> None:
    store = ElectionStore(FILES, str(tmp_path))
    assert store.read() is None
    (tmp_path / "quorum-state").write_text(text)
    assert store.read() == election
    store.write(election, kraft_version, (1,))
    assert json.loads((tmp_path / "quorum-state").read_text()) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", V0.replace('"data_version":0', '"data_version":9'), "null"])
def test_a_quorum_state_that_cannot_be_trusted_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(CorruptFile):
        ElectionStore(FILES, str(tmp_path)).read()


def write(directory: Path, records: list[bytes], kraft_version: int = 1) -> Snapshots:
    snapshots = Snapshots(FILES, str(directory))
    writer = SnapshotWriter(
        FILES,
        snapshots.path(SNAPSHOT),
        SNAPSHOT,
        last_contained_log_timestamp=1234,
        kraft_version=kraft_version,
        voters=VOTERS,
        now_ms=5678,
    )
    assert snapshots.known() == [], "an unfinished snapshot is none"
    assert snapshots.open() == []
    assert FILES.list_dir(str(directory)) == [], "what a former process left unfinished is removed"
    writer = SnapshotWriter(
        FILES,
        snapshots.path(SNAPSHOT),
        SNAPSHOT,
        last_contained_log_timestamp=1234,
        kraft_version=kraft_version,
        voters=VOTERS,
        now_ms=5678,
    )
    writer.append(records)
    writer.freeze()
    return snapshots


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = [b"x" * 700_000, b"y" * 700_000, b"z"]
    snapshots = write(tmp_path, records)
    assert (tmp_path / "00000000000000000120-0000000007.checkpoint").exists()
    assert snapshots.open() == [SNAPSHOT]
    reader = snapshots.reader(SNAPSHOT)
    assert [record for batch in reader for record in batch.records] == records
    assert reader.last_contained_log_timestamp == 1234
    assert (reader.control.kraft_version, reader.control.voters) == (1, VOTERS)


def test_static_voters_are_not_in_a_snapshot(tmp_path: Path) -> None:
    control = write(tmp_path, [b"x"], kraft_version=0).reader(SNAPSHOT).load_control()
    assert (control.kraft_version, control.voters) == (None, None)


def damage_truncated(data: bytes) -> bytes:
    return data[:-20]


def damage_no_footer(data: bytes) -> bytes:
    return data[: data.rindex(b"\x00\x00\x00\x07\x02") - 12]


def damage_flipped(data: bytes) -> bytes:
    return data[:200] + bytes([data[200] ^ 1]) + data[201:]


def damage_trailing(data: bytes) -> bytes:
    return data + b"\0" * 100


def damage_no_header(data: bytes) -> bytes:
    return data[12 + int.from_bytes(data[8:12], "big") :]


@pytest.mark.parametrize(
    "damage", [damage_truncated, damage_no_footer, damage_flipped, damage_trailing, damage_no_header, lambda data: b""]
)
def test_a_damaged_snapshot_is_not_loaded(tmp_path: Path, damage: object) -> None:
    snapshots = write(tmp_path, [b"x" * 300])
    path = Path(snapshots.path(SNAPSHOT))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptFile):
        list(snapshots.reader(SNAPSHOT))


def test_records_that_cannot_be_read_make_a_snapshot_damaged_though_their_crc_is_right(tmp_path: Path) -> None:
    """A follower drops its log for a snapshot, so it must find the damage before that."""
    snapshots = write(tmp_path, [b"x" * 300])
    path = Path(snapshots.path(SNAPSHOT))
    data = bytearray(path.read_bytes())
    at = 12 + int.from_bytes(data[8:12], "big")
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 57 : at + 61] = (9).to_bytes(4, "big")  # the number of records
    data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : end])).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match="batch at offset"):
        snapshots.check(SNAPSHOT)
    path.rename(f"{path}.part")
    with pytest.raises(CorruptFile):
        do_now(snapshots.checking(SNAPSHOT))
    assert FILES.list_dir(str(tmp_path)) == []


def test_a_download_arrives_in_pieces_and_a_damaged_one_is_dropped(tmp_path: Path) -> None:
    data = Path(write(tmp_path, [b"x" * 300]).path(SNAPSHOT)).read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    snapshots = Snapshots(FILES, str(other))
    for position in range(0, len(data), 100):
        snapshots.store_chunk(SNAPSHOT, position, data[position : position + 100])
    assert do_now(snapshots.checking(SNAPSHOT)).voters == VOTERS
    snapshots.finish(SNAPSHOT)
    assert Path(snapshots.path(SNAPSHOT)).read_bytes() == data
    snapshots.store_chunk(SNAPSHOT, 0, data[:150])
    with pytest.raises(CorruptFile):
        do_now(snapshots.checking(SNAPSHOT))
    assert [path.name for path in other.iterdir()] == ["00000000000000000120-0000000007.checkpoint"]


def test_a_log_that_starts_over_leaves_the_snapshot_alone_that_is_being_written(tmp_path: Path) -> None:
    """Before the fix the file was removed, and made again with a hole in place of the first part."""
    config = RaftConfig(1, DIRECTORY_ID, "cluster", (QuorumEndpoint("CONTROLLER", "host", 9093),), static_voters=VOTERS)
    log = MetadataLog(FILES, str(tmp_path), config, 0)
    own = OffsetAndEpoch(100, 7)
    writer = SnapshotWriter(
        FILES, log.snapshots.path(own), own, last_contained_log_timestamp=1, kraft_version=0, voters=None, now_ms=1
    )
    writer.append([b"first"])
    log.reset_to_snapshot(SNAPSHOT)
    writer.append([b"second"])
    writer.freeze()
    assert [record for batch in log.snapshots.reader(own) for record in batch.records if not batch.is_control] == [
        b"first",
        b"second",
    ]
    log.close()


def test_bootstrap_checkpoint(tmp_path: Path) -> None:
    assert read_bootstrap(FILES, str(tmp_path)) is None
    write_bootstrap(FILES, str(tmp_path), [b"feature level"], 1)
    assert read_bootstrap(FILES, str(tmp_path)) == [b"feature level"]
