"""Flushes whose system calls run on a worker while the log continues: what is durable when they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.storage.errors import StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import truncate_to
from ottla.storage.producers import producer_snapshots
from ottla.storage.producers.producer_snapshots import PRODUCERS_AT_ONCE
from tests.storage.logs_for_tests import NOW_MS, append, batch, open_at


def grow(log: Log, count: int, **producer: int) -> None:
    for _ in range(count):
        append(log, batch(**producer))


def flush_around(log: Log, meanwhile: str) -> bool:
    """A flush whose job begins before a truncation. The worker starts it before or after the truncation."""
    job = log.begin_flush()
    assert job is not None
    if meanwhile == "before it runs":
        truncate_to(log, 40)
    job.run()
    if meanwhile == "after it ran":
        truncate_to(log, 40)
    return log.end_flush(job, NOW_MS)


@pytest.mark.parametrize("meanwhile", ["before it runs", "after it ran"])
def test_a_flush_that_began_before_a_truncation_does_not_count(tmp_path: Path, meanwhile: str) -> None:
    """Otherwise records that replace the truncated batches would count as synced, and with flush.messages=1 be acknowledged."""
    log = open_at(tmp_path)
    grow(log, 50)
    assert not flush_around(log, meanwhile)
    assert log.recovery_point <= log.log_end_offset == 40
    grow(log, 5)
    before = log.recovery_point
    log.flush(NOW_MS)
    assert before <= 40 and log.recovery_point == 45
    log.close(clean=True)
    again = open_at(tmp_path, clean=True)
    assert again.log_end_offset == 45


def test_what_is_appended_while_a_flush_runs_belongs_to_the_next(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    grow(log, 3)
    job = log.begin_flush()
    assert job is not None
    grow(log, 2)
    job.run()
    assert log.end_flush(job, NOW_MS) and log.recovery_point == 3


def test_two_flushes_of_one_log_keep_the_snapshot_that_the_first_has_written(tmp_path: Path) -> None:
    """Both began before either ran, which may happen with flush.ms and flush.messages.

    The second one removed the file of the first.
    """
    log = open_at(tmp_path)
    for producer_id in range(PRODUCERS_AT_ONCE + 1):
        grow(log, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.snapshot_producers()
    first, second = log.begin_flush(), log.begin_flush()
    assert first is not None and second is not None
    for job in (first, second):
        job.run()
    for job in (first, second):
        assert log.end_flush(job, NOW_MS)
    end = log.log_end_offset
    assert log.snapshots.offsets.count(end) == 1 and (Path(log.directory) / f"{end:020}.snapshot").exists()
    log.close(clean=True)


def test_a_snapshot_that_was_written_of_a_truncated_end_is_removed(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for producer_id in range(PRODUCERS_AT_ONCE + 1):
        grow(log, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.snapshot_producers()
    end, job = log.log_end_offset, log.begin_flush()
    assert job is not None
    job.run()
    truncate_to(log, end - 1)
    assert not log.end_flush(job, NOW_MS)
    assert end not in log.snapshots.offsets and not (Path(log.directory) / f"{end:020}.snapshot").exists()


def test_a_snapshot_that_another_flush_has_written_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two flushes wrote it for a truncated end, and ends when the file already belongs to the second one."""
    monkeypatch.setattr(producer_snapshots, "PRODUCERS_AT_ONCE", 0)
    log = open_at(tmp_path)
    jobs = []
    for sequence in range(2):
        grow(log, 1, producer_id=7, producer_epoch=sequence, base_sequence=0)
        log.snapshot_producers()
        job = log.begin_flush()
        assert job is not None
        job.run()
        jobs.append(job)
        if not sequence:
            truncate_to(log, 0)
    first, second = jobs
    assert not log.end_flush(first, NOW_MS)
    assert log.end_flush(second, NOW_MS)
    file = Path(log.directory) / f"{1:020}.snapshot"
    assert log.snapshots.offsets == [1] and file.exists()
    [state] = producer_snapshots.decode(str(file), file.read_bytes())
    assert (state.producer_id, state.epoch) == (7, 1)
    log.close(clean=True)


def test_a_failure_of_the_disk_takes_the_log_offline_when_the_flush_ends(tmp_path: Path) -> None:
    """The worker keeps the error: on_failure changes state that belongs to the log's own thread."""
    log = open_at(tmp_path)
    failures: list[StorageFailure] = []
    log.partition_dir.on_failure = failures.append
    grow(log, 3)
    job = log.begin_flush()
    assert job is not None
    log.epochs._files = Broken()
    log.epochs.assign(7, log.log_end_offset)
    job.run()
    assert not failures
    with pytest.raises(StorageFailure, match="sync"):
        log.end_flush(job, NOW_MS)
    assert len(failures) == 1 and log.failure is failures[0] and log.recovery_point == 0


class Broken(OsFiles):
    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        raise StorageFailure(path, OSError(5, "sync"))
