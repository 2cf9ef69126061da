"""Segments wait for the topic's table, but not for ever: in retention and compaction, at the leader and at a follower."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.cleaner.cleaner import plan_for
from ottla.storage.log.log import Log
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log_config import LogConfig
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, open_at

HOLD_MS = 1_000_000
TABLE = replace(SMALL, ottla_table_format="iceberg", ottla_table_hold_ms_max=HOLD_MS)
#: All records have expired then, and their files were written just before.
EXPIRED_MS = NOW_MS + SMALL.retention_ms + 1_000


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[[LogConfig], Log]:
    """A log of 30 records in several segments, whose files are as old as its records."""

    def make(config: LogConfig) -> Log:
        log = open_at(tmp_path, config)
        for fill in range(30):
            append(log, batch(fill=fill))
        log.advance_high_watermark(30)
        for file in tmp_path.glob("*.log"):
            os.utime(file, (NOW_MS / 1000, NOW_MS / 1000))
        return log

    return make


def test_what_the_table_does_not_have_stays(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TABLE)
    third = log.segments[2].base_offset
    log.table_offset = third
    assert apply_retention(log, EXPIRED_MS) == 2
    assert log.log_start_offset == third
    log.table_offset = 30
    assert apply_retention(log, EXPIRED_MS) > 0
    assert log.log_start_offset == 30


def test_it_stays_no_longer_than_the_limit_and_the_gap_is_an_error(
    log_of: Callable[[LogConfig], Log], caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(TABLE)
    log.table_offset = 4
    assert apply_retention(log, EXPIRED_MS + HOLD_MS - 2_000) == 0
    assert apply_retention(log, EXPIRED_MS + HOLD_MS) > 0
    (error,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert "Deleted 26 records of topic-0 from offset 4 on" in error.getMessage()


def test_what_goes_while_the_tables_offset_is_unknown_is_an_error_too(
    log_of: Callable[[LogConfig], Log], caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(TABLE)
    assert apply_retention(log, EXPIRED_MS + HOLD_MS) > 0
    assert [each.getMessage()[:40] for each in caplog.records if each.levelno == logging.ERROR] == [
        "Deleted 30 records of topic-0 from offset"[:40]
    ]


def test_retention_by_size_waits_for_the_table_too(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(replace(TABLE, retention_ms=-1, retention_bytes=0))
    log.table_offset = 0
    assert apply_retention(log, NOW_MS) == 0
    assert apply_retention(log, NOW_MS + HOLD_MS + 1) > 0


def test_records_with_old_timestamps_wait_from_when_they_were_written(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TABLE)
    log.table_offset = 0
    written_ms = EXPIRED_MS + 10 * HOLD_MS
    for segment in log.segments:
        os.utime(segment.file.log_path, (written_ms / 1000, written_ms / 1000))
    assert apply_retention(log, written_ms + HOLD_MS - 1) == 0
    assert apply_retention(log, written_ms + HOLD_MS) > 0


@pytest.mark.parametrize("config", [replace(TABLE, ottla_table_retention_hold=False), SMALL])
def test_nothing_waits_where_it_is_not_asked_for(log_of: Callable[[LogConfig], Log], config: LogConfig) -> None:
    log = log_of(config)
    log.table_offset = 0
    assert apply_retention(log, EXPIRED_MS) > 0
    assert log.log_start_offset == 30


def test_delete_records_does_not_ask_the_table(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TABLE)
    log.table_offset = 0
    delete_records(log, 20)
    assert apply_retention(log, NOW_MS) > 0
    assert log.log_start_offset == 20


def test_a_follower_deletes_what_its_leader_has_deleted(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(TABLE)
    assert log.table_offset is None
    assert apply_retention(log, EXPIRED_MS) == 0
    log.start_at(log.segments[2].base_offset)
    assert apply_retention(log, EXPIRED_MS) == 2


def test_compaction_ends_where_the_table_is(log_of: Callable[[LogConfig], Log]) -> None:
    log = log_of(replace(TABLE, cleanup_policy=("compact",)))
    assert plan_for(log, 0, NOW_MS).end == 0, "it is not known yet where the table is"
    third = log.segments[2].base_offset
    log.table_offset = third + 1
    assert plan_for(log, 0, NOW_MS).end == third
    assert plan_for(log, 0, NOW_MS + HOLD_MS + 1).end == log.segments.active.base_offset
    log.table_offset = 30
    assert plan_for(log, 0, NOW_MS).end == log.segments.active.base_offset
