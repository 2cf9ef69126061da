"""The file system calls of an append may first be made on another thread, so that the event loop does not wait for them."""

from __future__ import annotations

import copy
import errno
from pathlib import Path

import pytest

from ottla.protocol.records.builder import Prepared
from ottla.protocol.work import TooLong, Turn
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.lookup import prepare_append
from ottla.storage.log.room import FILES_AHEAD
from ottla.storage.log.truncate import truncate_to, truncation_job
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_snapshots import decode
from tests.storage.directories.test_logs import FILES, A, B, formatted, opened
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, open_at, read_all

NO_TIMESTAMP = -1


class Syncs(OsFiles):
    """Counts what the calling thread waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.directories = 0
        self.created: list[str] = []

    def sync_dir(self, path: str) -> None:
        self.directories += 1
        super().sync_dir(path)

    def create(self, path: str) -> None:
        self.created.append(path)
        super().create(path)

    def make_dirs(self, path: str) -> None:
        self.created.append(path)
        super().make_dirs(path)


class Full(OsFiles):
    """A disk that has room only for directories."""

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        raise DiskFull(path, OSError(errno.ENOSPC, "no room"))


def from_a_client(log: Log, records: bytes, prepared: Prepared | Turn) -> int:
    return log.append(records, leader_epoch=0, now_ms=NOW_MS, prepared=prepared).first_offset


def prepared_by_disk_job(log: Log, records: bytes) -> Prepared:
    """Prepare as `broker.long_work` does, which runs the requested calls on a worker."""
    work = prepare_append(log, memoryview(records), NOW_MS, Turn())
    try:
        while True:
            asked = next(work)
            if asked is not None:
                asked()
    except StopIteration as end:
        assert isinstance(end.value, Prepared)
        return end.value


def test_a_clients_first_record_makes_no_file_on_the_loop(tmp_path: Path) -> None:
    formatted(tmp_path)
    logs = opened(tmp_path)
    log = logs.create("orders", 0, A, LogConfig())
    files = log.partition_dir.files = Syncs()
    with pytest.raises(TooLong):
        from_a_client(log, batch(), Turn())
    assert not files.created and not log.partition_dir.exists
    done = prepared_by_disk_job(log, batch())
    assert log.partition_dir.exists
    files.created.clear()
    assert from_a_client(log, batch(), done) == 0
    assert not files.created
    assert from_a_client(log, batch(fill=1), Turn()) == 1, "the second one takes no detour"


def test_a_follower_that_may_not_wait_for_the_disk_has_changed_nothing_and_goes_on_after_the_job(
    tmp_path: Path,
) -> None:
    formatted(tmp_path)
    log = opened(tmp_path).create("orders", 0, A, LogConfig())
    files = log.partition_dir.files = Syncs()
    first, second = (bytearray(batch(fill=fill)) for fill in range(2))
    second[7] = 1  # its base offset

    def follow(records: bytes) -> int:
        return append_trusted(log, records, 0, NOW_MS, Origin.REPLICATION, may_wait=False).first_offset

    with pytest.raises(TooLong):
        follow(first)
    assert not files.created and (log.log_end_offset, log.epochs.latest) == (0, -1)
    job = log.room.disk_job(len(first), 0, NOW_MS, NOW_MS)
    assert job is not None
    job.run()
    files.created.clear()
    assert [follow(first), follow(second)] == [0, 1]
    assert not files.created


def test_the_first_record_of_a_topic_makes_the_files_of_its_next_partitions_too(tmp_path: Path) -> None:
    formatted(tmp_path)
    logs = opened(tmp_path)
    of_topic = [logs.create("orders", index, A, LogConfig()) for index in range(2 * FILES_AHEAD)]
    other = logs.create("other", 0, B, LogConfig())
    gone = of_topic[1]
    logs.delete(A, 1)
    prepared_by_disk_job(of_topic[0], batch())
    assert [log.partition for log in logs.open if log.partition_dir.exists] == [0, *range(2, FILES_AHEAD)]
    assert not (tmp_path / "orders-1").exists() and not gone.partition_dir.exists and not other.partition_dir.exists
    assert from_a_client(of_topic[2], batch(), Turn()) == 0, "its first record takes no detour"
    prepared_by_disk_job(of_topic[-1], batch())
    assert all(log.partition_dir.exists for log in logs.open if log is not other)


def test_a_full_disk_beside_the_first_record_of_a_topic_is_no_failure_of_that_record(tmp_path: Path) -> None:
    formatted(tmp_path)
    logs = opened(tmp_path)
    log, full = (logs.create("orders", index, A, LogConfig()) for index in range(2))
    full.partition_dir.files = Full()
    assert from_a_client(log, batch(), prepared_by_disk_job(log, batch())) == 0
    assert not full.partition_dir.exists and full.failure is None
    full.partition_dir.files = log.files
    assert from_a_client(full, batch(), prepared_by_disk_job(full, batch())) == 0


def test_a_clients_roll_syncs_nothing_on_the_loop_and_the_next_flush_syncs_its_name(tmp_path: Path) -> None:
    files = Syncs()
    log = open_at(tmp_path, SMALL, files=files)
    written, asked = b"", 0
    for i in range(60):
        records, before = batch(fill=i), files.directories
        try:
            from_a_client(log, records, Turn())
        except TooLong:
            asked += 1
            done = prepared_by_disk_job(log, records)
            assert files.directories == before + 1
            from_a_client(log, records, done)
            before += 1
        assert files.directories == before
        written = read_all(log)
    assert asked == len(log.segments) - 1 > 3
    before = files.directories
    log.flush()
    assert (files.directories > before, log.durability.rolls_synced) == (True, log.durability.rolls)
    assert read_all(open_at(tmp_path)) == written


def test_a_clients_roll_by_time_syncs_nothing_on_the_loop_either(tmp_path: Path) -> None:
    """The partitions of a topic roll together after segment.ms: one Produce for fifty of them waited for fifty syncs."""
    files = Syncs()
    log = open_at(tmp_path, LogConfig(segment_ms=60_000), files=files)
    append(log, batch())
    late, before = batch(timestamp=NOW_MS + 120_000), files.directories
    with pytest.raises(TooLong):
        from_a_client(log, late, Turn())
    done = prepared_by_disk_job(log, late)
    assert files.directories == before + 1
    assert from_a_client(log, late, done) == 1
    assert (len(log.segments), files.directories) == (2, before + 1)


def test_a_roll_that_could_not_ask_syncs_by_itself(tmp_path: Path) -> None:
    files = Syncs()
    log = open_at(tmp_path, SMALL, files=files)
    while len(log.segments) < 3:
        append(log, batch())
    assert files.directories == 2


def test_a_length_that_was_synced_before_the_file_grew_does_not_count(tmp_path: Path) -> None:
    files = Syncs()
    log = open_at(tmp_path, LogConfig(segment_bytes=100_000), files=files)
    append(log, batch(size=1000))
    log.flush()
    assert log.segments.active.file.length_synced
    while log.segments.active.file.size < 20_000:
        append(log, batch(size=1000))
    assert not log.segments.active.file.length_synced


def test_a_reopened_segment_has_no_length_that_was_synced(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    while len(log.segments) < 2:
        append(log, batch())
    log.flush()
    truncate_to(log, 3)
    append(log, batch())
    assert not log.segments.active.file.length_synced


def test_a_disk_job_that_fails_leaves_the_refusal_to_the_append(tmp_path: Path) -> None:
    formatted(tmp_path / "data")
    logs = opened(tmp_path / "data")
    log = logs.create("orders", 0, A, LogConfig())

    class Failing(OsFiles):
        def make_dirs(self, path: str) -> None:
            raise StorageFailure(path, "it cannot")

    log.partition_dir.files = Failing()
    done = prepared_by_disk_job(log, batch())
    with pytest.raises(StorageFailure):
        from_a_client(log, batch(), done)
    assert log.failure is not None


def test_a_log_deleted_before_its_disk_job_gets_no_files(tmp_path: Path) -> None:
    formatted(tmp_path)
    logs = opened(tmp_path)
    log = logs.create("orders", 0, A, LogConfig())
    job = log.room.disk_job(100, 0, NO_TIMESTAMP, NOW_MS)
    assert job is not None
    logs.delete(A, 0, NOW_MS)
    job()
    assert not log.partition_dir.exists and not FILES.exists(log.directory)


def of_producer(producer_id: int, sequence: int = 0) -> bytes:
    return batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_a_roll_writes_the_state_of_few_producers_and_leaves_that_of_many_to_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 10)
    log = open_at(tmp_path)
    for producer_id in range(10):
        append(log, of_producer(producer_id))
    log.roll(NOW_MS)
    assert (tmp_path / f"{10:020d}.snapshot").exists()
    append(log, of_producer(10))
    few = log.roll(NOW_MS)
    assert (few, list(log.snapshots.frozen)) == (11, [11])
    assert not (tmp_path / f"{11:020d}.snapshot").exists()
    expected = copy.deepcopy(list(log.producers))
    for producer_id in range(11):
        append(log, of_producer(producer_id, 1))
    log.flush()
    assert not log.snapshots.frozen
    path = str(tmp_path / f"{11:020d}.snapshot")
    assert decode(path, FILES.read(path) or b"") == expected, "as they were when the segment was rolled"
    again = open_at(tmp_path, recovery_point=log.recovery_point)
    assert 11 in again.snapshots.offsets
    assert list(again.producers) == list(log.producers)


def test_what_was_frozen_of_producers_goes_with_a_truncation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 0)
    log = open_at(tmp_path)
    for producer_id in range(4):
        append(log, of_producer(producer_id))
        log.snapshot_producers()
    assert list(log.snapshots.frozen) == [1, 2, 3, 4]
    truncate_to(log, 2)
    log.flush()
    assert [path.name for path in sorted(tmp_path.glob("*.snapshot"))] == [f"{1:020d}.snapshot", f"{2:020d}.snapshot"]


def test_a_snapshot_that_retention_passes_while_a_flush_writes_it_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention removes the file after the flush has ended, and the log still named it (seed 700 of tests/sim/log_threads.py)."""
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 0)
    log = open_at(tmp_path)
    for producer_id in range(4):
        append(log, of_producer(producer_id))
        log.snapshot_producers()
    job = log.begin_flush()
    assert job is not None and list(job.frozen) == [1, 2, 3, 4]
    assert log.snapshots.leave(lambda offset: offset < 3) == []
    job.run()
    assert log.end_flush(job, NOW_MS)
    assert log.snapshots.offsets == [3, 4]
    assert [path.name for path in sorted(tmp_path.glob("*.snapshot"))] == [f"{3:020d}.snapshot", f"{4:020d}.snapshot"]


class SnapshotReads(OsFiles):
    """Counts reads of producer snapshots."""

    snapshots = 0

    def read(self, path: str) -> bytes | None:
        self.snapshots += path.endswith(".snapshot")
        return super().read(path)


def of_many_producers(directory: Path) -> tuple[Log, SnapshotReads]:
    """A snapshot at 12, and batches of the same producers behind it."""
    files = SnapshotReads()
    log = open_at(directory, files=files)
    for producer_id in range(12):
        append(log, of_producer(producer_id))
    log.flush()
    log.snapshot_producers()
    log.flush()
    assert 12 in log.snapshots.offsets
    for producer_id in range(6):
        append(log, of_producer(producer_id, 1))
    return log, files


def test_a_truncation_takes_over_the_producers_that_its_disk_job_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 10)
    log, files = of_many_producers(tmp_path)
    job = truncation_job(log, 15)
    assert job is not None
    before = (log.log_end_offset, copy.deepcopy(list(log.producers)))
    decoded = job()
    assert (log.log_end_offset, list(log.producers)) == before, "it only reads"
    files.snapshots = 0
    assert truncate_to(log, 15, decoded)
    assert files.snapshots == 0
    assert list(log.producers) == list(open_at(tmp_path).producers)
    assert [state.last_sequence for state in log.producers] == [1, 1, 1, *[0] * 9]


def test_what_a_disk_job_has_read_does_not_count_behind_another_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another snapshot of that offset may have been written."""
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 10)
    log, _ = of_many_producers(tmp_path)
    job = truncation_job(log, 15)
    assert job is not None
    stale = job()
    truncate_to(log, 11)
    append(log, of_producer(99))
    log.snapshot_producers()
    log.flush()
    assert 12 in log.snapshots.offsets
    append(log, of_producer(99, 1))
    truncate_to(log, 12, stale)
    assert {state.producer_id for state in log.producers} == {*range(11), 99}


def test_a_damaged_snapshot_is_found_by_the_truncation_that_follows_its_disk_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 10)
    log, _ = of_many_producers(tmp_path)
    (tmp_path / f"{12:020d}.snapshot").write_bytes(b"damaged")
    job = truncation_job(log, 15)
    assert job is not None
    truncate_to(log, 15, job())
    assert [state.last_sequence for state in log.producers] == [1, 1, 1, *[0] * 9]
    assert 12 not in log.snapshots.offsets


def test_few_producers_are_read_by_the_truncation_itself(tmp_path: Path) -> None:
    log, _ = of_many_producers(tmp_path)
    assert truncation_job(log, 15) is None
