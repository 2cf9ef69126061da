"""A full disk rejects appends cleanly, keeps everything readable, and continues once there is room. There is never a SIGBUS."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.errors import DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import OsMappedFile, WriteDescriptors
from ottla.storage.producers.producer_states import Origin
from tests.needs import small_disk as mounted
from tests.storage.logs_for_tests import NOW_MS, append, append_as, batch, marker, open_at, read_all

CONFIG = LogConfig(segment_bytes=200_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "1m") as where:
        yield where


def fill(log: Log) -> bytes:
    """Append until the disk is full. Return what was acknowledged."""
    for i in range(10_000):
        try:
            append(log, batch(fill=i, size=1000))
        except DiskFull:
            return read_all(log, 1 << 20)
    raise AssertionError("the disk is never full")


def test_a_full_disk_refuses_and_stays_readable(small_disk: Path) -> None:
    log = open_at(small_disk / "log", CONFIG)
    written = fill(log)
    assert len(written) > 700_000
    for _ in range(3):
        with pytest.raises(DiskFull):
            append(log, batch(size=100_000))
    assert read_all(log, 1 << 20) == written
    assert log.failure is None


def test_appends_go_on_when_there_is_room_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    log = open_at(small_disk / "log", CONFIG)
    written = fill(log)
    end = log.log_end_offset
    ballast.unlink()
    assert append(log, batch(size=1000)) == end
    assert read_all(log, 1 << 20).startswith(written)
    del log
    again = open_at(small_disk / "log", CONFIG)
    assert again.log_end_offset == end + 1


def of_producer(sequence: int) -> bytes:
    return batch(size=1000, producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_what_follows_a_refused_batch_is_refused_for_its_reason_until_that_one_is_in(small_disk: Path) -> None:
    """An idempotent producer has several batches in flight.

    An error about their order would be its own fault, and make it begin a new epoch.
    """
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    log = open_at(small_disk / "log", CONFIG)
    append(log, of_producer(0))
    fill(log)
    for sequence in (1, 2, 3, 1, 2):
        with pytest.raises(DiskFull):
            append(log, of_producer(sequence))
    ballast.unlink()
    with pytest.raises(DiskFull):
        append(log, of_producer(2))
    for sequence in (1, 2):
        append(log, of_producer(sequence))
    with pytest.raises(KafkaError) as refused:
        append(log, of_producer(4))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def take_the_rest(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while True:
            ballast.write(bytes(4096))


def test_what_was_acknowledged_before_the_disk_was_full_survives_a_kill(small_disk: Path) -> None:
    log = open_at(small_disk / "log", CONFIG)
    written = fill(log)
    end = log.log_end_offset
    del log
    again = open_at(small_disk / "log", CONFIG)
    assert (again.log_end_offset, read_all(again, 1 << 20)) == (end, written)


def test_a_flush_with_no_room_for_indexes_still_raises_the_recovery_point(small_disk: Path) -> None:
    log = open_at(small_disk / "log", CONFIG)
    append(log, batch())
    log.flush(NOW_MS)
    fill(log)
    written, end = read_all(log, 1 << 20), log.log_end_offset
    take_the_rest(small_disk)
    log.flush(NOW_MS)
    assert (log.recovery_point, log.failure) == (end, None)
    (small_disk / "ballast").unlink()
    del log
    again = open_at(small_disk / "log", CONFIG, recovery_point=end)
    assert (again.log_end_offset, read_all(again, 1 << 20)) == (end, written)
    assert again.read(end - 1, max_bytes=10_000).next_offset == end


def test_a_flush_with_no_room_for_an_epoch_does_not_raise_the_recovery_point_until_there_is_some(
    small_disk: Path,
) -> None:
    log = open_at(small_disk / "log", CONFIG)
    append(log, batch(), epoch=3)
    log.flush(NOW_MS)
    take_the_rest(small_disk)
    append(log, batch(), epoch=4)
    with pytest.raises(DiskFull):
        log.flush(NOW_MS)
    assert (log.recovery_point, log.failure) == (1, None)
    again = open_at(small_disk / "log", CONFIG, recovery_point=1)
    assert (again.log_end_offset, again.epochs.entries) == (2, [(3, 0), (4, 1)])
    (small_disk / "ballast").unlink()
    log.flush(NOW_MS)
    assert log.recovery_point == 2
    assert open_at(small_disk / "log", CONFIG, clean=True).epochs.entries == [(3, 0), (4, 1)]


def test_growing_beyond_the_disk_changes_nothing(small_disk: Path) -> None:
    path = str(small_disk / "file")
    OsFiles().create(path)
    mapped = OsMappedFile(path, 1 << 30, True, WriteDescriptors())
    mapped.ensure(100_000)
    mapped.buffer[99_999] = 7
    with pytest.raises(DiskFull):
        mapped.ensure(50_000_000)
    assert mapped.size == 100_000
    assert mapped.buffer[99_999] == 7


def test_an_atomic_write_without_room_leaves_the_old_file(small_disk: Path) -> None:
    path = str(small_disk / "checkpoint")
    files = OsFiles()
    files.write_atomic(path, b"old")
    (small_disk / "ballast").write_bytes(bytes(900_000))
    with pytest.raises(DiskFull):
        files.write_atomic(path, bytes(500_000))
    assert files.read(path) == b"old"
    assert not files.exists(path + ".tmp")


class FailingFiles(OsFiles):
    """Every write after the switch was thrown fails with EIO."""

    broken = False

    def sync_file(self, path: str) -> None:
        if self.broken:
            raise StorageFailure(path, OSError(5, "Input/output error"))
        super().sync_file(path)


def test_after_a_failed_fsync_the_log_takes_no_more_writes_and_stays_readable(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_at(tmp_path, CONFIG, files=files)
    append(log, of_producer(0))
    files.broken = True
    failures: list[StorageFailure] = []
    log.partition_dir.on_failure = failures.append
    with pytest.raises(StorageFailure):
        log.flush()
    files.broken = False
    with pytest.raises(LogDirectoryOffline):
        log.flush()
    for sequence in (1, 2):
        with pytest.raises(StorageFailure):
            append(log, of_producer(sequence))
    assert log.recovery_point == 0
    assert len(failures) == 1
    assert log.read(0, max_bytes=2000).next_offset == 1


def test_a_copy_with_holes_behind_the_last_batch_refuses_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools `cp --sparse=always` and rsync -S make such copies of what a killed node has allocated ahead."""
    log = open_at(tmp_path, CONFIG)
    append(log, batch(size=1000))
    size = log.segments.active.file.size
    path = tmp_path / "00000000000000000000.log"
    length = path.stat().st_size
    log.durability.unmap()
    os.truncate(path, size)
    os.truncate(path, length)
    again = open_at(tmp_path, CONFIG)

    def full(fd: int, offset: int, count: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                append(again, batch(size=1000))
    assert append(again, batch(size=1000)) == 1
    allocated = path.stat().st_blocks * 512
    assert allocated >= length, "a write through the mapping finds a block behind each byte"


@pytest.mark.parametrize("origin", [Origin.COORDINATOR, Origin.REPLICATION])
def test_an_abort_with_no_room_for_its_index_entry_is_refused_and_the_log_stays_online(
    small_disk: Path, origin: Origin
) -> None:
    """The marker fits into the allocated space, but the 34 bytes beside it do not."""
    log = open_at(small_disk / "log", CONFIG)
    append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    take_the_rest(small_disk)
    for _ in range(2):
        with pytest.raises(DiskFull):
            append_as(origin, log, marker(7, 0, commit=False, base_offset=1, leader_epoch=0), 0, NOW_MS)
    assert (log.log_end_offset, log.failure) == (1, None)
    append_as(origin, log, marker(9, 0, commit=True, base_offset=1, leader_epoch=0), 0, NOW_MS)
    (small_disk / "ballast").unlink()
    append_as(origin, log, marker(7, 0, commit=False, base_offset=2, leader_epoch=0), 0, NOW_MS)
    assert [each[:3] for each in log.segments.aborted_transactions(0, 3)] == [(7, 0, 2)]
    again = open_at(small_disk / "log", CONFIG)
    assert [each[:3] for each in again.segments.aborted_transactions(0, 3)] == [(7, 0, 2)]


def test_room_that_was_reserved_is_no_part_of_the_file_and_is_there_when_the_disk_is_full(small_disk: Path) -> None:
    path, files = small_disk / "index", OsFiles()
    files.reserve(str(path), 100_000)
    assert path.stat().st_size == 0
    take_the_rest(small_disk)
    files.pwrite(str(path), 0, bytes(100_000))
    assert path.stat().st_size == 100_000
