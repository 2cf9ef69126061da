"""A future log follows the log that it will replace: the point up to which both agree, starts, gaps, compaction."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.protocol.errors import KafkaError
from ottla.protocol.work import DiskJob
from ottla.storage.cleaner.cleaner import Advance, Cleaner
from ottla.storage.directories import future_logs
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DamagedPartition, StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import future_partition_of, has_future_name
from ottla.storage.log.retention import advance_log_start_offset, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log_config import LogConfig
from tests.storage.chores import rename_deleted
from tests.storage.directories.test_logs import A, B, formatted, killed, opened
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, offset_for_timestamp, read_all


@pytest.mark.parametrize(
    ("first", "second", "start", "end", "agreed"),
    [
        ([(1, 0)], [(1, 0)], 0, 10, 10),
        ([(1, 0), (3, 6)], [(1, 0), (2, 4)], 0, 10, 4),
        ([(1, 0), (3, 6)], [(1, 0)], 0, 10, 6),
        ([(1, 0), (3, 6)], [(1, 2), (3, 6)], 2, 10, 10),
        ([(2, 0)], [(1, 0)], 0, 10, 0),
        ([], [], 3, 9, 9),
        ([(1, 0), (4, 12)], [(1, 0)], 0, 10, 10),
    ],
)
def test_two_logs_agree_up_to_the_first_offset_of_another_epoch(
    first: list[tuple[int, int]], second: list[tuple[int, int]], start: int, end: int, agreed: int
) -> None:
    assert future_logs.agreement(first, second, start, end) == agreed
    assert future_logs.agreement(second, first, start, end) == agreed


def test_the_name_of_a_future_log_is_kafkas_and_long_topics_have_none() -> None:
    assert future_partition_of(f"a.b-c-12.{'0f' * 16}-future") == ("a.b-c", 12)
    assert future_partition_of(f"a.b-c-12.{'0f' * 16}-delete") is None
    assert has_future_name("t" * 213, 0) and not has_future_name("t" * 214, 0)


@pytest.fixture
def two(tmp_path: Path) -> Logs:
    formatted(tmp_path / "a")
    formatted(tmp_path / "b", directory_id=B)
    return opened(tmp_path / "a", tmp_path / "b")


def moving(logs: Logs, config: LogConfig = SMALL, appends: int = 40) -> tuple[Log, Log]:
    log = logs.create("orders", 0, A, config, directory_id=A)
    for i in range(appends):
        append(log, batch(fill=i), epoch=i // 15)
    log.advance_high_watermark(log.log_end_offset)
    return log, logs.futures.create(log, logs.directories[1], NOW_MS)


def copy_all(log: Log, future: Log) -> None:
    while copied := future_logs.copy_some(log, future, 700, NOW_MS):
        if not isinstance(copied, int):
            copied()


def test_a_future_log_has_the_batches_epochs_and_producers_of_the_log(two: Logs) -> None:
    log, future = moving(two)
    append(log, batch(producer_id=5, producer_epoch=0, base_sequence=0), epoch=3)
    copy_all(log, future)
    assert read_all(future) == read_all(log)
    assert future.epochs.entries == log.epochs.entries
    assert future.producers.states.keys() == {5}
    two.futures.replace(log, future, NOW_MS)
    assert two.open.get(A, 0) is future and two.open.directory_of(future).directory_id == B
    append(future, batch(fill=99), epoch=3)
    assert len(read_all(future)) > len(read_all(log)), "a reader of the old log still has it"


def test_a_copy_that_rolls_by_time_has_its_sync_on_a_worker(two: Logs) -> None:
    config = LogConfig(segment_ms=60_000)
    log = two.create("orders", 0, A, config, directory_id=A)
    append(log, batch())
    append(log, batch(timestamp=NOW_MS + 120_000))
    log.advance_high_watermark(2)
    future = two.futures.create(log, two.directories[1], NOW_MS)
    for segments in (1, 2):
        job = future_logs.copy_some(log, future, 1, NOW_MS)
        assert isinstance(job, DiskJob), "the first files, and the sync before the roll"
        job()
        assert future_logs.copy_some(log, future, 1, NOW_MS, disk_job_done=True) == len(batch())
        assert len(future.segments) == segments


def test_a_search_that_still_reads_the_old_log_fails_alone(two: Logs) -> None:
    """A search by time may take several turns. Its client asks again."""
    log, future = moving(two)
    copy_all(log, future)
    two.futures.replace(log, future, NOW_MS)
    rename_deleted(two)
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        offset_for_timestamp(log, 0)
    with pytest.raises(StorageFailure):
        log.read(0, max_bytes=100)
    assert not two.open.offline_directories
    assert offset_for_timestamp(future, 0) is not None


def test_a_future_log_is_truncated_where_the_log_was_and_starts_where_it_does(two: Logs) -> None:
    log, future = moving(two)
    copy_all(log, future)
    truncate_to(log, 32)
    append(log, batch(fill=7), epoch=9)
    future_logs.align(log, future)
    assert future.log_end_offset == 32
    log.advance_high_watermark(33)
    delete_records(log, 20)
    future_logs.follow_start(log, future, NOW_MS)
    assert future.log_start_offset == 20
    assert future.segments[0].base_offset > 0, "segments before the start are gone"
    truncate_fully_and_start_at(log, 100)
    future_logs.follow_start(log, future, NOW_MS)
    assert (future.log_start_offset, future.log_end_offset) == (100, 100)


def test_a_gap_at_the_end_of_the_log_is_taken_over(two: Logs) -> None:
    log, future = moving(two)
    copy_all(log, future)
    log.durability.end_gap, log.log_end_offset = (40, 45), 45
    assert future_logs.copy_some(log, future, 700, NOW_MS) == 0
    two.futures.replace(log, future, NOW_MS)
    assert future.log_end_offset == 45
    assert append(future, batch(), epoch=3) == 45


def test_a_log_that_was_killed_before_its_checkpoints_is_replaced_by_a_copy_that_starts_above_its_high_watermark(
    two: Logs, tmp_path: Path
) -> None:
    log, future = moving(two)
    copy_all(log, future)
    advance_log_start_offset(log, 11)
    future_logs.follow_start(log, future, NOW_MS)
    future.flush(NOW_MS)
    two.checkpoints.write_log_starts(two.directories[1])
    killed(two)
    again = opened(tmp_path / "a", tmp_path / "b")
    log, copy = again.open.get(A, 0), again.open.future(A, 0)
    assert log is not None and copy is not None
    assert (log.log_start_offset, log.high_watermark, copy.log_start_offset) == (0, 0, 11)
    future_logs.align(log, copy)
    copy_all(log, copy)
    again.futures.replace(log, copy, NOW_MS)
    assert (copy.log_start_offset, copy.high_watermark, copy.log_end_offset) == (11, 11, 40)


def test_a_log_is_not_compacted_while_it_moves_and_a_pass_ends(two: Logs) -> None:
    compacted = LogConfig(cleanup_policy=("compact",), segment_bytes=2000, min_cleanable_dirty_ratio=0.0)
    log = two.create("orders", 0, A, compacted, directory_id=A)
    for i in range(40):
        append(log, batch(fill=i))
    log.advance_high_watermark(40)
    steps = Cleaner(two).run(NOW_MS)
    step = next(steps)
    while not isinstance(step, Advance):
        if isinstance(step, DiskJob):
            step.run()
        step = steps.send(None)
    future = two.futures.create(log, two.directories[1], NOW_MS)
    with pytest.raises(StopIteration):
        steps.send(None)
    with pytest.raises(StopIteration) as nothing_due:
        next(Cleaner(two).run(NOW_MS))
    assert nothing_due.value.value is False
    two.futures.drop(future, NOW_MS)
    assert not isinstance(next(Cleaner(two).run(NOW_MS)), StopIteration)


def test_a_compacted_log_is_copied_again_after_a_restart(two: Logs, tmp_path: Path) -> None:
    """It may have been compacted while the directory of its copy was offline: the copy would keep what tombstones deleted."""
    log, future = moving(two)
    copy_all(log, future)
    future.flush()
    two.close_all()
    again = opened(tmp_path / "a", tmp_path / "b")
    assert [found.log_end_offset for found in again.open.futures()] == [40]
    again.close_all()
    logs = Logs(again.files, again.directories, Random(1))
    logs.open_all(lambda topic, topic_id: LogConfig(cleanup_policy=("compact",)), NOW_MS)
    (found,) = logs.open.futures()
    assert found.log_end_offset == 0
    current = logs.open.get(A, 0)
    assert current is not None and current.cleaning.is_moving


def test_a_future_log_whose_log_is_gone_with_its_directory_takes_its_place_unless_that_may_come_back(
    two: Logs, tmp_path: Path
) -> None:
    log, future = moving(two)
    copy_all(log, future)
    future.flush()
    killed(two)
    meta = tmp_path / "a" / "meta.properties"
    meta.rename(tmp_path / "away")
    meta.mkdir()
    offline = opened(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DamagedPartition):
        offline.create("orders", 0, A, SMALL, directory_id=B)
    killed_directory = offline.directories[1].lock
    assert killed_directory is not None
    killed_directory.release()
    alone = opened(tmp_path / "b")
    adopted = alone.create("orders", 0, A, SMALL, directory_id=B)
    assert adopted.log_end_offset == 40
    assert adopted.directory == str(tmp_path / "b" / "orders-0")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its directory", "in another one"])
def test_a_future_log_that_the_metadata_does_not_name_is_set_aside_when_its_log_is_gone(
    two: Logs, tmp_path: Path, elsewhere: bool
) -> None:
    """A power loss took a log which was never flushed, and left a part of its copy."""
    log, future = moving(two)
    copy_all(log, future)
    future.flush()
    killed(two)
    (tmp_path / "a" / "orders-0").rename(tmp_path / "lost")
    if elsewhere:
        again = opened(tmp_path / "a", tmp_path / "b")
    else:
        again = opened(tmp_path / "b")
    new = again.create("orders", 0, A, SMALL, directory_id=A)
    assert (new.log_start_offset, new.log_end_offset, again.open.futures()) == (0, 0, [])
    assert new.directory == str(tmp_path / ("a" if elsewhere else "b") / "orders-0")
    (kept,) = (tmp_path / "b").glob("*-stray")
    assert list(kept.glob("*.log")), "the operator has its records"
    append(new, batch())
    new.flush()
    killed(again)
    last = opened(*(directory.path for directory in again.directories)).open.get(A, 0)
    assert last is not None and last.log_end_offset == 1


def test_a_future_log_in_the_directory_of_its_log_is_deleted_at_the_start(two: Logs, tmp_path: Path) -> None:
    log, future = moving(two)
    copy_all(log, future)
    two.close_all()
    Path(future.directory).rename(tmp_path / "a" / Path(future.directory).name)
    again = opened(tmp_path / "a", tmp_path / "b")
    found = again.open.get(A, 0)
    assert found is not None and not again.open.futures() and not found.cleaning.is_moving
    assert again.open.in_directory(again.directories[0]) == [found], (
        "its checkpoints are written, and it fails with its disk"
    )
