"""A log whose beginning is only in remote storage: its epochs and producer states survive every crash, all of them or none
(KIP-405).
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.directories.future_logs import align, copy_some
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import apply_retention
from ottla.storage.log.truncate import Restored, restore_and_start_at
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_states import BatchMetadata, ProducerState
from tests.sim.disk import CAPACITY_BYTES, Killed, SimDisk
from tests.storage.logs_for_tests import NOW_MS, SMALL, batch, open_at

TIERED = replace(SMALL, remote_storage_enable=True)
OLD, STORED = 7, 9
RESTORED = Restored(60, [(1, 0), (3, 20)], [ProducerState(STORED, 2, batches=[BatchMetadata(41, 59, 1, NOW_MS)])])
DIRECTORY = Path("/logs/topic-0")


def new_disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.make_dirs("/logs")
    disk.sync_dir("/")
    return disk


def old_log(directory: Path, disk: SimDisk | None = None) -> Log:
    """Four records of another history are on the disk."""
    log = open_at(directory, TIERED, files=disk)
    for sequence in range(4):
        records = batch(producer_id=OLD, producer_epoch=0, base_sequence=sequence)
        log.append(records, leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    return log


def of(log: Log) -> tuple[int, int, int, list[tuple[int, int]], list[int]]:
    producers = sorted(state.producer_id for state in log.producers)
    return log.log_start_offset, log.local_start_offset, log.log_end_offset, log.epochs.entries, producers


def restored_from(start: int) -> tuple[int, int, int, list[tuple[int, int]], list[int]]:
    return start, 60, 60, [(1, start), (3, 20)], [STORED]


@pytest.mark.parametrize("clean", [True, False])
def test_it_begins_behind_the_store_and_is_found_so_again(tmp_path: Path, clean: bool) -> None:
    log = old_log(tmp_path)
    restore_and_start_at(log, RESTORED, 5)
    assert of(log) == restored_from(5)
    assert (log.high_watermark, log.recovery_point) == (60, 60)
    if clean:
        log.close()
    # After a kill the checkpoint may still have the earlier recovery point.
    again = open_at(tmp_path, TIERED, clean=clean, recovery_point=60 if clean else 0, log_start_offset=5)
    assert of(again) == restored_from(5)


def test_a_retry_of_a_batch_that_only_the_store_has_is_a_duplicate(tmp_path: Path) -> None:
    log = old_log(tmp_path)
    restore_and_start_at(log, RESTORED, 0)
    retried = log.append(
        batch(2, producer_id=STORED, producer_epoch=2, base_sequence=40), leader_epoch=4, now_ms=NOW_MS
    )
    assert (retried.duplicate, retried.first_offset, retried.last_offset) == (True, 58, 59)
    following = log.append(
        batch(1, producer_id=STORED, producer_epoch=2, base_sequence=42), leader_epoch=4, now_ms=NOW_MS
    )
    assert (following.duplicate, following.first_offset) == (False, 60)
    assert log.epochs.entries == [(1, 0), (3, 20), (4, 60)]


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_in_any_call_leaves_one_history_or_an_empty_log(power: bool) -> None:
    """Epochs from the store beside earlier batches would be taken for the leader's log."""
    seen: set[str] = set()
    for calls in range(1, 200):
        disk = new_disk(calls)
        log = old_log(DIRECTORY, disk)
        before = of(log)
        disk.kill_after(calls)
        try:
            restore_and_start_at(log, RESTORED, 0)
        except Killed:
            pass
        else:
            assert seen == {"before", "empty", "restored"}
            return
        disk.crash(power)
        again = open_at(DIRECTORY, TIERED, files=disk, recovery_point=4)
        found = of(again)
        expected = {"before": before, "empty": (0, 0, 0, [], []), "restored": restored_from(0)}
        assert found in expected.values(), f"killed in call {calls}"
        seen |= {name for name, state in expected.items() if state == found}
        restore_and_start_at(again, RESTORED, 0)
        assert of(again) == restored_from(0)
    raise AssertionError("it takes more than 200 calls")


def test_a_failing_disk_takes_the_log_offline_and_the_next_start_finds_one_history() -> None:
    for calls in range(1, 200):
        disk = new_disk(calls)
        log = old_log(DIRECTORY, disk)
        before = of(log)
        disk.fail_after(calls)
        try:
            restore_and_start_at(log, RESTORED, 0)
        except StorageFailure:
            assert log.failure is not None
        else:
            return
        disk.crash(False)
        again = open_at(DIRECTORY, TIERED, files=disk, recovery_point=4)
        assert of(again) in (before, (0, 0, 0, [], []), restored_from(0)), f"failed in call {calls}"
    raise AssertionError("it takes more than 200 calls")


def test_on_a_full_disk_nothing_changes_and_it_is_done_when_there_is_room() -> None:
    for room in range(0, 2_000, 50):
        disk = new_disk(room)
        log = old_log(DIRECTORY, disk)
        before, records = of(log), bytes(log.read(0, max_bytes=10_000).records)
        disk.room_bytes = disk.used_bytes() + room
        with suppress(DiskFull):
            restore_and_start_at(log, RESTORED, 0)
            assert room > 0
            return
        assert (of(log), log.failure, bytes(log.read(0, max_bytes=10_000).records)) == (before, None, records)
        disk.room_bytes = CAPACITY_BYTES
        restore_and_start_at(log, RESTORED, 0)
        assert of(log) == restored_from(0)
    raise AssertionError("it takes more than 2,000 bytes")


def open_transaction(disk: SimDisk | None, config: LogConfig, directory: Path = DIRECTORY) -> Log:
    """A transaction begins in the first segment; other producers write three segments behind it."""
    log = open_at(directory, config, files=disk)
    begun = batch(producer_id=OLD, producer_epoch=0, base_sequence=0, transactional=True)
    append_trusted(log, begun, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    for _ in range(40):
        log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.flush()
    return log


@pytest.mark.parametrize("power", [False, True])
def test_a_transaction_whose_records_only_the_store_has_is_known_to_be_open_after_a_crash(power: bool) -> None:
    """The simulator found that a read_committed consumer got an aborted record: the marker behind it had ended nothing."""
    for calls in range(1, 200):
        disk = new_disk(calls)
        log = open_transaction(disk, replace(TIERED, local_retention_ms=1))
        log.remote_end = log.log_end_offset - 1
        disk.kill_after(calls)
        with suppress(Killed):
            apply_retention(log, NOW_MS + 10_000)
        is_over = not disk.killed
        disk.crash(power)
        again = open_at(DIRECTORY, TIERED, files=disk)
        assert again.producers.first_unstable_offset() == 0, f"killed in call {calls}"
        if is_over:
            assert again.local_start_offset > 0
            return
    raise AssertionError("it takes more than 200 calls")


def test_segments_stay_until_a_snapshot_behind_them_is_there() -> None:
    disk = new_disk(1)
    log = open_transaction(disk, replace(TIERED, local_retention_ms=1))
    log.remote_end = log.log_end_offset - 1
    second, third = (log.segments[index].base_offset for index in (1, 2))
    log.snapshots.forget(lambda offset: offset != third)
    assert apply_retention(log, NOW_MS + 10_000) > 1
    assert log.local_start_offset in (third, log.log_end_offset) and second < third
    log = open_transaction(new_disk(2), replace(TIERED, local_retention_ms=1, local_retention_bytes=1500))
    log.remote_end = log.log_end_offset - 1
    log.snapshots.forget(lambda offset: offset != log.log_end_offset)
    log.config = replace(log.config, local_retention_ms=-1)
    assert apply_retention(log, NOW_MS + 10_000) == 0 == log.local_start_offset


def test_a_copy_in_another_directory_knows_the_transaction_too(tmp_path: Path) -> None:
    current = open_transaction(None, replace(TIERED, local_retention_ms=1), tmp_path / "a" / "topic-0")
    current.remote_end = current.log_end_offset - 1
    assert apply_retention(current, NOW_MS + 10_000) > 0
    future = open_at(tmp_path / "b" / "topic-0", TIERED)
    align(current, future)
    while copy_some(current, future, 1000, NOW_MS):
        pass
    assert future.producers.first_unstable_offset() == 0
    assert (of(future), future.segments.bases) == (of(current), [current.local_start_offset])
    again = open_at(tmp_path / "b" / "topic-0", TIERED)
    assert (of(again), again.producers.first_unstable_offset()) == (of(current), 0)
