"""The log shows an operator the changes of segments: rolled, deleted, cut off, recovered, cleaned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at
from tests.storage.cleaner.test_cleaner_life import COMPACT, grow, node, run
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, filled, open_at

Read = Callable[[], list[str]]


@pytest.fixture
def read(caplog: pytest.LogCaptureFixture) -> Read:
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        ours = [
            record for record in caplog.records if record.name.startswith("ottla.storage")
        ]  # other threads log, too
        caplog.clear()
        return [f"{record.levelname} {record.getMessage()}" for record in ours]

    return lines


def test_a_full_segment_is_followed_by_a_new_one(tmp_path: Path, read: Read) -> None:
    log = open_at(tmp_path, SMALL)
    while len(log.segments) < 2:
        append(log, batch())
    assert read() == [f"INFO Rolled new log segment at offset {log.segments.active.base_offset} in topic-0"]


@pytest.mark.parametrize(
    ("changed", "later_ms", "why"),
    [
        ({"retention_ms": 1000}, 1_000_000, "log retention time 1000ms breach"),
        ({"retention_ms": -1, "retention_bytes": 2000}, 0, "log retention size 2000 breach"),
    ],
)
def test_segments_that_retention_deletes(
    changed: dict[str, int], later_ms: int, why: str, tmp_path: Path, read: Read
) -> None:
    log = filled(tmp_path, 40, replace(SMALL, **changed))
    first = log.segments[0]
    log.advance_high_watermark(40)
    read()
    assert apply_retention(log, NOW_MS + later_ms) > 0
    assert f"INFO Deleting segment 0 of topic-0 ({first.file.size} bytes) due to {why}" in read()


def test_deleted_records_raise_the_log_start_offset_and_take_segments_with_them(tmp_path: Path, read: Read) -> None:
    log = filled(tmp_path, 40, replace(SMALL, retention_ms=-1))
    log.advance_high_watermark(40)
    read()
    delete_records(log, 30)
    apply_retention(log, NOW_MS)
    lines = read()
    assert lines[0] == "INFO Incremented log start offset to 30 in topic-0"
    assert lines[1].startswith("INFO Deleting segment 0 of topic-0")
    assert lines[1].endswith("due to log start offset 30 breach")


def test_a_log_is_emptied_for_a_leader_that_begins_later(tmp_path: Path, read: Read) -> None:
    log = filled(tmp_path, 5)
    read()
    truncate_fully_and_start_at(log, 100)
    assert read() == ["INFO Truncating topic-0 fully and starting at offset 100"]


def test_a_killed_nodes_log_is_recovered(tmp_path: Path, read: Read) -> None:
    filled(tmp_path, 40)
    read()
    open_at(tmp_path)
    assert read() == ["INFO Recovered unflushed segments of topic-0 from recovery point 0 to log end offset 40"]


def test_a_torn_batch_is_cut_off(tmp_path: Path, read: Read) -> None:
    log = filled(tmp_path, 5)
    path = Path(log.segments.active.file.log_path)
    end = log.segments.active.file.size
    with path.open("r+b") as file:
        file.seek(end - 1)
        file.write(b"?")
    read()
    open_at(tmp_path)
    assert f"WARNING Corruption found in segment {path}, truncating to offset 4" in read()


def test_a_compacted_log_says_what_that_saved(tmp_path: Path, read: Read) -> None:
    logs = node(tmp_path)
    log = logs.create("t", 0, bytes([1]) * 16, COMPACT)
    grow(log, 100)
    before = sum(segment.file.size for segment in list(log.segments)[:-1])
    read()
    run(logs)
    after = sum(segment.file.size for segment in list(log.segments)[:-1])
    assert 0 < after < before / 2
    saved = 100 * (1 - after / before)
    assert read() == [
        f"INFO Log cleaner cleaned log t-0 (dirty section = [0, 100)): from {before} to {after} bytes, {saved:.1f}% size"
        " reduction"
    ]


def test_a_start_says_whether_logs_have_to_be_recovered(tmp_path: Path, read: Read) -> None:
    logs = node(tmp_path)
    logs.close_all()
    read()
    node(tmp_path)
    assert read() == [f"INFO Skipping recovery of the logs in {tmp_path}, as a clean shutdown file was found"]
    node(tmp_path)  # the node before was not closed
    assert read() == [f"INFO Beginning recovery of the logs in {tmp_path}, as no clean shutdown file was found"]
