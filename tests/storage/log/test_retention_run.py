"""Retention in three parts: what happens to the log between the removal of segments and the renames of their files."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.protocol.work import DiskJob
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.retention import SEGMENTS_AT_ONCE, RetentionJob, apply_retention, begin_retention
from ottla.storage.log.truncate import truncate_fully_and_start_at
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, filled, open_at

LATER_MS = NOW_MS + SMALL.retention_ms + 1_000


def names(path: Path, pattern: str) -> list[str]:
    return sorted(each.name for each in path.glob(pattern))


def test_segments_leave_the_log_at_once_and_their_files_by_the_job(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    before = names(tmp_path, "*.log")
    job = begin_retention(log, LATER_MS)
    assert job is not None and job.segments == len(before)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size) == (30, 30, 0)
    assert not names(tmp_path, "*.deleted") and not log.partition_dir.deleted_files
    assert append(log, batch()) == 30, "appends go on meanwhile"
    job.run()
    assert not log.partition_dir.deleted_files
    job.end()
    assert names(tmp_path, "*.log") == ["00000000000000000030.log"]
    assert len(names(tmp_path, "*.log.deleted")) == len(before)
    assert sorted(log.partition_dir.deleted_files) == sorted(str(path) for path in tmp_path.glob("*.deleted"))
    log.close()
    again = open_at(tmp_path, SMALL)
    assert (again.log_start_offset, again.log_end_offset) == (30, 31)


@pytest.mark.parametrize("ran", [False, True])
def test_a_truncation_meanwhile_keeps_its_new_segment_although_it_has_the_name_of_one_that_left(
    tmp_path: Path, ran: bool
) -> None:
    log = filled(tmp_path, 30)
    job = begin_retention(log, LATER_MS)
    assert job is not None
    if ran:
        job.run()
    truncate_fully_and_start_at(log, 0)
    assert append(log, batch(fill=99)) == 0
    job.run()
    job.end()
    assert names(tmp_path, "*.log") == ["00000000000000000000.log"]
    log.close()
    again = open_at(tmp_path, SMALL)
    assert (again.log_start_offset, again.log_end_offset) == (0, 1)


def test_the_job_of_a_log_that_is_deleted_meanwhile_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    log = filled(tmp_path / "orders-0", 30)
    job = begin_retention(log, LATER_MS)
    assert job is not None
    log.durability.leave()
    (tmp_path / "orders-0").rename(tmp_path / "orders-0.deleted")
    job.run()
    job.end()
    assert log.failure is None


def test_a_full_disk_keeps_the_job_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(tmp_path, 30)
    segments = len(log.segments)
    rename, left = OsFiles.rename, [3]

    def fail(files: OsFiles, source: str, target: str) -> None:
        if target.endswith(".deleted"):
            left[0] -= 1
            if left[0] < 0:
                raise DiskFull(source, OSError(errno.ENOSPC, "no space"))
        rename(files, source, target)

    monkeypatch.setattr(OsFiles, "rename", fail)
    with pytest.raises(DiskFull):
        apply_retention(log, LATER_MS)
    assert log.failure is None and len(names(tmp_path, "*.deleted")) == 3
    left[0] = 10**6
    assert apply_retention(log, LATER_MS) == segments
    assert names(tmp_path, "*.log") == ["00000000000000000030.log"] and len(log.partition_dir.deleted_files) > segments


def test_a_disk_that_fails_takes_the_log_offline_when_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 30)
    job = begin_retention(log, LATER_MS)
    assert job is not None

    def fail(files: OsFiles, source: str, target: str) -> None:
        raise StorageFailure(source, OSError(errno.EIO, "bad block"))

    monkeypatch.setattr(OsFiles, "rename", fail)
    job.run()
    assert log.failure is None, "another thread has run it"
    with pytest.raises(StorageFailure):
        job.end()
    assert log.failure is not None


def test_the_segments_of_one_job_are_bounded_and_the_rest_follows(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(SMALL, segment_bytes=200))
    for i in range(2 * SEGMENTS_AT_ONCE + 5):
        append(log, batch(fill=i))
    log.advance_high_watermark(log.log_end_offset)
    segments = len(log.segments)
    assert segments > 2 * SEGMENTS_AT_ONCE
    sizes = []
    while (job := begin_retention(log, LATER_MS)) is not None:
        assert begin_retention(log, LATER_MS) is job, "one at a time"
        job.run()
        job.end()
        sizes.append(job.segments)
    assert sizes == [SEGMENTS_AT_ONCE, SEGMENTS_AT_ONCE, segments - 2 * SEGMENTS_AT_ONCE]


def test_mappings_end_on_the_thread_of_the_job(tmp_path: Path) -> None:
    """It takes 3.4 ms to unmap a segment of 1 GB, and 64 segments may be removed in one turn of the loop."""
    log = filled(tmp_path, 30)
    old = list(log.segments)[:-1]
    for segment in old:
        segment.file.view()
    job = begin_retention(log, LATER_MS)
    assert isinstance(job, RetentionJob)
    assert all(segment.file.mapped is not None for segment in old)
    job.run()
    assert all(segment.file.mapped is None for segment in old)
    job.end()


def test_a_log_that_has_to_roll_asks_for_its_sync_first(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    assert begin_retention(log, NOW_MS, disk_job_done=False) is None, "nothing has expired"
    job = begin_retention(log, LATER_MS, disk_job_done=False)
    assert isinstance(job, DiskJob) and job.directory == log.partition_dir.log_dir
    synced: list[str] = []
    sync_dir = log.files.sync_dir
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsFiles, "sync_dir", lambda files, path: (synced.append(path), sync_dir(path))[1])
        job.run()
        assert len(synced) == 1
        assert isinstance(begin_retention(log, LATER_MS, disk_job_done=False), RetentionJob), "it is done"
        assert len(synced) == 1, "the roll waits for no disk"
