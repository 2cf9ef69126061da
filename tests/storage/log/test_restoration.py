"""A log that begins behind what remote storage has: with the epochs and producer states of that, all of them or nothing (KIP-405)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import Restored, restore_and_start_at
from ottla.storage.producers.producer_states import BatchMetadata, ProducerState
from tests.sim.disk import Killed, SimDisk
from tests.storage.logs_for_tests import NOW_MS, SMALL, batch, open_at

TIERED = replace(SMALL, remote_storage_enable=True)
OLD, STORED = 7, 9
RESTORED = Restored(60, [(1, 0), (3, 20)], [ProducerState(STORED, 2, batches=[BatchMetadata(41, 59, 1, NOW_MS)])])
DIRECTORY = Path("/logs/topic-0")


def old_log(directory: Path, disk: SimDisk | None = None) -> Log:
    """Four records of another history, on the disk."""
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
    # After a kill the checkpoint may still have the recovery point of before.
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
    """Epochs of the store beside batches of before would pass for the leader's log."""
    seen: set[str] = set()
    for calls in range(1, 200):
        disk = SimDisk(random.Random(calls), lambda: NOW_MS)
        disk.make_dirs("/logs")
        disk.sync_dir("/")
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
        disk = SimDisk(random.Random(calls), lambda: NOW_MS)
        disk.make_dirs("/logs")
        disk.sync_dir("/")
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
