"""Segments that remote storage has leave the local disk: the local start offset moves, and the log start offset stays (KIP-405)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.log import Log
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log_config import LogConfig
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, open_at

RECORDS = 40
TIERED = replace(SMALL, remote_storage_enable=True, local_retention_ms=1_000, local_retention_bytes=-2)
LATER_MS = NOW_MS + 10_000
EXPIRED_MS = NOW_MS + TIERED.retention_ms + 1_000


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[[LogConfig], Log]:
    """A log of 40 records in several segments, of two leader epochs."""

    def make(config: LogConfig) -> Log:
        log = open_at(tmp_path, config)
        for fill in range(RECORDS):
            append(log, batch(fill=fill), epoch=0 if fill < 10 else 3)
        log.advance_high_watermark(RECORDS)
        log.flush()
        return log

    return make


def reopened(log: Log, tmp_path: Path, config: LogConfig, *, clean: bool) -> Log:
    """The log after its process has ended, with the offsets that its checkpoints had."""
    if clean:
        log.close()
    else:
        log.epochs.flush()
    recovery_point = log.recovery_point
    return open_at(tmp_path, config, clean=clean, recovery_point=recovery_point, log_start_offset=log.log_start_offset)


def test_nothing_leaves_that_remote_storage_does_not_have(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TIERED)
    assert apply_retention(log, EXPIRED_MS) == 0
    second, third = log.segments[1].base_offset, log.segments[2].base_offset
    log.remote_end = third - 2  # its last record is missing
    assert apply_retention(log, EXPIRED_MS) == 1
    assert (log.log_start_offset, log.local_start_offset) == (0, second)
    log.remote_end = third - 1
    assert apply_retention(log, EXPIRED_MS) == 1
    assert (log.log_start_offset, log.local_start_offset) == (0, third)


def test_what_is_not_flushed_stays_although_remote_storage_has_it(tmp_path: Path) -> None:
    log = open_at(tmp_path, TIERED)
    for fill in range(RECORDS):
        append(log, batch(fill=fill))
    log.advance_high_watermark(RECORDS)
    log.remote_end = RECORDS - 1
    assert apply_retention(log, EXPIRED_MS) == 0, "a crash would lose the epochs of what is elsewhere"
    log.flush()
    assert apply_retention(log, EXPIRED_MS) > 0


@pytest.mark.parametrize(("copies", "leaves"), [(True, True), (False, False)])
def test_with_an_empty_cleanup_policy_the_disk_is_left_for_remote_storage_and_nothing_expires_without_it(
    log_of: Callable[[LogConfig], Log], copies: bool, leaves: bool
) -> None:
    log = log_of(replace(TIERED, cleanup_policy=(), remote_log_copy_disable=not copies))
    log.remote_end = RECORDS - 1
    assert (apply_retention(log, EXPIRED_MS) > 0) is leaves


def test_local_retention_decides_by_size_too(log_of: Callable[[LogConfig], Log]) -> None:
    config = replace(TIERED, local_retention_ms=-1, local_retention_bytes=SMALL.segment_bytes)
    log = log_of(config)
    log.remote_end = RECORDS - 1
    size = log.segments.size
    gone = apply_retention(log, LATER_MS)
    assert gone > 0
    assert SMALL.segment_bytes <= log.segments.size < size
    assert log.log_start_offset == 0


def test_without_local_retention_the_topics_retention_decides(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(replace(TIERED, local_retention_ms=-2))
    log.remote_end = RECORDS - 1
    assert apply_retention(log, LATER_MS) == 0
    assert apply_retention(log, EXPIRED_MS) > 0


def test_while_copying_is_off_retention_deletes_from_the_log_itself(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(replace(TIERED, remote_log_copy_disable=True))
    assert apply_retention(log, LATER_MS) == 0  # local.retention.ms has no meaning then
    assert apply_retention(log, EXPIRED_MS) > 0
    assert log.log_start_offset == log.local_start_offset > 0


def test_a_read_before_the_local_start_says_that_it_is_elsewhere(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TIERED)
    log.remote_end = RECORDS - 1
    apply_retention(log, LATER_MS)
    with pytest.raises(KafkaError) as moved:
        log.read(log.local_start_offset - 1, max_bytes=1000)
    assert moved.value.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert log.read(log.local_start_offset, max_bytes=1000).first_batch_offset == log.local_start_offset
    delete_records(log, 5)
    with pytest.raises(KafkaError) as gone:
        log.read(4, max_bytes=1000)
    assert gone.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_beyond_the_local_start_moves_both(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TIERED)
    log.remote_end = log.segments[1].base_offset - 1
    apply_retention(log, LATER_MS)
    delete_records(log, 30)
    assert log.log_start_offset == log.local_start_offset == 30
    assert apply_retention(log, LATER_MS) > 0  # what is below the log start needs no copy
    assert log.segments[0].base_offset <= 30


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_the_log_start_and_the_epochs_of_what_is_elsewhere(
    log_of: Callable[[LogConfig], Log], tmp_path: Path, clean: bool
) -> None:
    log = log_of(TIERED)
    log.flush()
    log.remote_end = RECORDS - 1
    apply_retention(log, LATER_MS)
    local_start = log.local_start_offset
    assert local_start > 10
    again = reopened(log, tmp_path, TIERED, clean=clean)
    assert (again.log_start_offset, again.local_start_offset, again.log_end_offset) == (0, local_start, RECORDS)
    assert again.epochs.entries == [(0, 0), (3, 10)]
    assert again.remote_end == -1  # it is found again before anything leaves
    assert apply_retention(again, EXPIRED_MS) == 0


def test_without_remote_storage_the_log_starts_with_its_first_segment(
    log_of: Callable[[LogConfig], Log], tmp_path: Path
) -> None:
    log = log_of(SMALL)
    assert apply_retention(log, EXPIRED_MS) > 0
    start = log.log_start_offset
    assert start == log.local_start_offset
    log.close()
    again = open_at(tmp_path, SMALL, clean=True)
    assert again.log_start_offset == again.local_start_offset == start


def test_an_empty_log_goes_on_behind_what_is_elsewhere(log_of: Callable[[LogConfig], Log], tmp_path: Path) -> None:
    log = log_of(TIERED)
    truncate_fully_and_start_at(log, 25, 4)
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (4, 25, 25)
    assert log.high_watermark == 25
    assert log.epochs.entries == [(0, 0), (3, 10)]
    append(log, batch(), epoch=4)
    again = reopened(log, tmp_path, TIERED, clean=True)
    assert (again.log_start_offset, again.local_start_offset, again.log_end_offset) == (4, 25, 26)


def test_a_truncation_before_the_local_start_keeps_what_is_elsewhere(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TIERED)
    log.remote_end = RECORDS - 1
    apply_retention(log, LATER_MS)
    assert log.local_start_offset > 12
    truncate_to(log, 12)
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (0, 12, 12)
    assert log.epochs.entries == [(0, 0), (3, 10)]
