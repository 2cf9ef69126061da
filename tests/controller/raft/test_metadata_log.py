"""The metadata log is opened again: only a small part of it is looked at, and nothing is missing afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import Batch, ControlRecords
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import SnapshotWriter
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.records.control import ControlType, control_batch
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles
from ottla.storage.segment import segment_check

ENDPOINT = QuorumEndpoint("CONTROLLER", "host", 9093)
VOTERS = VoterSet.of([Voter(ReplicaKey(1), (ENDPOINT,))])
DYNAMIC = VoterSet.of([Voter(ReplicaKey(1, b"d" * 16), (ENDPOINT,))])
FILES = OsFiles()


def opened(directory: Path) -> MetadataLog:
    return MetadataLog(FILES, str(directory), RaftConfig(1, b"d" * 16, "c", (ENDPOINT,), static_voters=VOTERS), 0)


def fill(log: MetadataLog, first: int, end: int, epoch: int) -> None:
    for offset in range(first, end):
        log.append(Batch(offset, offset, epoch, [b"no-op"]), 1)
        log.state.append(offset, offset, epoch)
    log.flush(1)


def snapshot(log: MetadataLog, offset: int, epoch: int) -> None:
    """Take a snapshot of the committed records, as the driver does."""
    made = OffsetAndEpoch(offset, epoch)
    kraft_version = log.voters.kraft_version_at(offset)
    writer = SnapshotWriter(
        FILES,
        log.snapshots.path(made),
        made,
        last_contained_log_timestamp=1,
        kraft_version=kraft_version,
        voters=log.voters.at(offset) if kraft_version else None,
        now_ms=1,
    )
    writer.freeze()
    log.state.add_snapshot(made)
    log.snapshot_created(1)
    log.flush(1)


@pytest.mark.parametrize("clean", [True, False])
def test_only_what_came_since_the_snapshot_before_the_last_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """An idle quorum writes 1.2 million batches in the week that its log is kept."""
    log = opened(tmp_path)
    for at in range(0, 1000, 100):
        fill(log, at, at + 100, 1 + at // 300)
        if at >= 100:
            snapshot(log, at + 100, 1 + at // 300)
    fill(log, 1000, 1020, 7)
    before = LogState(log.state.start_offset, log.state.end_offset, list(log.state.epochs), list(log.state.snapshots))
    if clean:
        log.close()
    checked, appended = [0], [0]
    crc32c, append = segment_check.crc32c, LogState.append

    def counted_crc(data: memoryview) -> int:
        checked[0] += 1
        return crc32c(data)

    def counted_append(self: LogState, base_offset: int, last_offset: int, epoch: int) -> None:
        appended[0] += 1
        append(self, base_offset, last_offset, epoch)

    monkeypatch.setattr(segment_check, "crc32c", counted_crc)
    monkeypatch.setattr(LogState, "append", counted_append)
    again = opened(tmp_path)
    assert appended[0] == 20
    assert 0 < checked[0] <= 220, "of 1,020"
    assert (again.state.start_offset, again.state.end_offset) == (before.start_offset, before.end_offset)
    assert (again.state.epochs, again.state.snapshots) == (before.epochs, before.snapshots)
    assert [batch.base_offset for batch in _all(again, 1020)] == list(range(1020))
    again.close()


def test_a_follower_at_the_logs_start_gets_records_after_a_crash_between_segments_and_snapshots(tmp_path: Path) -> None:
    """The segments below the new start were deleted, but not the older snapshot: its offset made the follower's position too
    old.
    """
    log = opened(tmp_path)
    fill(log, 0, 100, 2)
    snapshot(log, 100, 2)
    fill(log, 100, 200, 4)
    snapshot(log, 200, 4)
    fill(log, 200, 203, 4)
    log.start_at(OffsetAndEpoch(200, 4), [], 1)
    again = opened(tmp_path)
    assert again.state.start_offset == 200
    assert again.state.validate(OffsetAndEpoch(200, 4)) is None
    assert again.snapshots.known() == again.state.snapshots == [OffsetAndEpoch(200, 4)]
    again.close()


def test_the_voters_of_before_the_snapshot_are_in_it(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 10, 1)
    log.append(Batch(10, 11, 1, ControlRecords(kraft_version=1, voters=DYNAMIC), DYNAMIC, 1), 1)
    log.state.append(10, 11, 1)
    log.voters.append(11, DYNAMIC, 1)
    fill(log, 12, 20, 1)
    snapshot(log, 20, 1)
    log.close()
    again = opened(tmp_path)
    assert (again.voters.last, again.voters.kraft_version) == (DYNAMIC, 1)
    assert again.state.epochs == [(1, 0)]
    again.close()


def test_a_damaged_recovery_point_costs_time_and_nothing_else(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 30, 1)
    snapshot(log, 30, 1)
    fill(log, 30, 40, 2)
    log.close()
    (tmp_path / "__cluster_metadata-0" / "recovery-point-offset-checkpoint").write_text("0\nmany\n")
    again = opened(tmp_path)
    assert (again.state.end_offset, again.state.epochs) == (40, [(1, 0), (2, 30)])
    again.close()


def test_what_is_not_on_the_disk_yet_moves_no_recovery_point(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 30, 1)
    snapshot(log, 30, 1)
    path = tmp_path / "__cluster_metadata-0" / "recovery-point-offset-checkpoint"
    assert path.read_text().split() == ["0", "1", "__cluster_metadata", "0", "30"]
    log.state.add_snapshot(OffsetAndEpoch(99, 1))
    log.flush(1)
    assert path.read_text().split()[-1] == "30", "the log ends before that snapshot"
    log.close()


@pytest.mark.parametrize(("end", "offset"), [(10, 20), (30, 20)])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[:70] + b"?" + data[71:], lambda data: b""]
)
def test_a_log_is_not_given_up_for_a_damaged_snapshot(
    tmp_path: Path, damage: Callable[[bytes], bytes], end: int, offset: int
) -> None:
    """The leader sent a snapshot that lies beyond the log; the log is to begin at it."""
    log = opened(tmp_path)
    fill(log, 0, end, 1)
    made = OffsetAndEpoch(offset, 2)
    path = Path(log.snapshots.path(made))
    SnapshotWriter(
        FILES, str(path), made, last_contained_log_timestamp=1, kraft_version=0, voters=None, now_ms=1
    ).freeze()
    log.log.close()
    path.write_bytes(damage(path.read_bytes()))
    try:
        assert opened(tmp_path).state.snapshots == []
    except CorruptFile as fault:
        assert str(path) in str(fault)
    path.unlink()
    again = opened(tmp_path)
    assert (again.state.start_offset, again.state.end_offset) == (0, end)


def test_damage_below_the_recovery_point_stops_the_start_with_its_place(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 30, 1)
    snapshot(log, 30, 1)
    fill(log, 30, 40, 2)
    log.log.close()
    path = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5] + b"?????")
    with pytest.raises(CorruptFile, match="damaged at byte"):
        opened(tmp_path)


def test_a_control_batch_that_cannot_be_read_stops_the_start_with_its_offset(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 0, 3, 1)
    unreadable = control_batch([(ControlType.KRAFT_VOTERS, b"?")], timestamp=1, base_offset=3, leader_epoch=1)
    log.append(Batch(3, 3, 1, unreadable), 1)
    log.log.close()
    with pytest.raises(CorruptFile, match="control batch at offset 3"):
        opened(tmp_path)


def _all(log: MetadataLog, end: int) -> list[CommittedBatch]:
    found: list[CommittedBatch] = []
    at = 0
    while at < end:
        batches = log.committed(at, end, 1 << 20)
        found += batches
        at = batches[-1].last_offset + 1
    return found
