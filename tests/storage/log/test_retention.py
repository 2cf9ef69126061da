"""The segments that are deleted by time, by size, or by the log start offset; and those that never are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.storage.log.log import Log
from ottla.storage.log.retention import apply_retention, delete_records, expired
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.segment_indexes import UNKNOWN, TimestampAndOffset
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch, max_timestamp, offset_for_timestamp, open_at

KEEP = LogConfig(retention_ms=-1, retention_bytes=-1)


class FakeSegments(list[SimpleNamespace]):
    size = property(lambda self: sum(each.file.size for each in self))

    def next_base(self, index: int) -> int | None:
        return self[index + 1].base_offset if index + 1 < len(self) else None


def fake_segment(base_offset: int, size: int, timestamp: int) -> SimpleNamespace:
    indexes = SimpleNamespace(largest_timestamp=lambda: TimestampAndOffset(timestamp, base_offset))
    return SimpleNamespace(base_offset=base_offset, file=SimpleNamespace(size=size), indexes=indexes)


def fake_log(config: LogConfig, segments: list[SimpleNamespace], start: int, watermark: int, end: int) -> Log:
    log = SimpleNamespace(
        config=config,
        segments=FakeSegments(segments),
        log_start_offset=start,
        high_watermark=watermark,
        log_end_offset=end,
    )
    return cast(Log, log)


# Four segments of 100 bytes and ten offsets each, with timestamps 100, 200, 300 and 400.
SEGMENTS = [fake_segment(i * 10, 100, (i + 1) * 100) for i in range(4)]


@pytest.mark.parametrize(
    ("config", "start", "watermark", "now_ms", "gone"),
    [
        (KEEP, 0, 40, 10**15, 0),
        (replace(KEEP, retention_ms=100), 0, 40, 300, 1),
        (replace(KEEP, retention_ms=100), 0, 40, 301, 2),
        (replace(KEEP, retention_ms=100), 0, 40, 10_000, 4),
        (replace(KEEP, retention_ms=100), 0, 39, 10_000, 3),
        (replace(KEEP, retention_ms=100), 0, 15, 10_000, 1),
        (replace(KEEP, retention_ms=0), 0, 40, 100, 0),
        (replace(KEEP, retention_bytes=400), 0, 40, 0, 0),
        (replace(KEEP, retention_bytes=301), 0, 40, 0, 0),
        (replace(KEEP, retention_bytes=300), 0, 40, 0, 1),
        (replace(KEEP, retention_bytes=150), 0, 40, 0, 2),
        (replace(KEEP, retention_bytes=0), 0, 40, 0, 4),
        (KEEP, 9, 40, 0, 0),
        (KEEP, 10, 40, 0, 1),
        (KEEP, 39, 40, 0, 3),
        (KEEP, 40, 40, 0, 3),
        (replace(KEEP, retention_ms=1, cleanup_policy=("compact",)), 0, 40, 10**9, 0),
        (replace(KEEP, retention_ms=1, cleanup_policy=("compact",)), 20, 40, 10**9, 2),
        (replace(KEEP, retention_ms=1, cleanup_policy=("compact", "delete")), 0, 40, 10**9, 4),
    ],
)
def test_how_many_segments_go(config: LogConfig, start: int, watermark: int, now_ms: int, gone: int) -> None:
    assert len(list(expired(fake_log(config, SEGMENTS, start, watermark, 40), now_ms))) == gone


def test_an_empty_active_segment_is_not_replaced_for_ever() -> None:
    log = fake_log(replace(KEEP, retention_ms=1), [fake_segment(5, 0, 0)], 5, 5, 5)
    assert list(expired(log, 10**9)) == []


def test_a_log_past_its_retention_is_empty_and_goes_on_at_its_end(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for i in range(30):
        append(log, batch(fill=i))
    log.advance_high_watermark(30)
    segments = len(log.segments)
    assert apply_retention(log, NOW_MS + SMALL.retention_ms + 1000) == segments
    assert (log.log_start_offset, log.log_end_offset, log.segments.size) == (30, 30, 0)
    assert append(log, batch()) == 30
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["00000000000000000030.log"]
    assert len(list(tmp_path.glob("*.log.deleted"))) == segments
    assert not [path for path in tmp_path.glob("*.snapshot") if int(path.stem) < 30]


@pytest.mark.parametrize("way", ["retention.ms=0", "retention.bytes=0", "DeleteRecords"])
def test_a_log_without_a_record_left_has_no_record_at_any_time_and_none_that_is_the_latest(
    tmp_path: Path, way: str
) -> None:
    """The responses of 4.3.1 to ListOffsets for such topics (2026-11-30), except -3 after DeleteRecords (docs/DIFFERENCES.md)."""
    config = {"retention.ms=0": replace(KEEP, retention_ms=0), "retention.bytes=0": replace(KEEP, retention_bytes=0)}
    log = open_at(tmp_path, config.get(way, KEEP))
    append(log, batch(3))
    log.advance_high_watermark(3)
    if way == "DeleteRecords":
        delete_records(log, 3)
    else:
        assert apply_retention(log, NOW_MS + 3) == 1
    assert (log.log_start_offset, log.local_start_offset, log.log_end_offset) == (3, 3, 3)
    assert log.epochs.epoch_of(3) == 0
    assert [offset_for_timestamp(log, at) for at in (0, 5, NOW_MS, 1 << 50)] == [None] * 4
    assert max_timestamp(log) is None


def test_records_of_the_future_do_not_go_and_a_clock_that_went_back_removes_nothing(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for i in range(30):
        append(log, batch(fill=i))
    log.advance_high_watermark(30)
    assert apply_retention(log, 0) == 0
    assert apply_retention(log, -(10**12)) == 0
    assert log.log_start_offset == 0


def test_readers_keep_what_they_hold_when_its_segment_goes(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for i in range(30):
        append(log, batch(fill=i))
    log.advance_high_watermark(30)
    held = log.read(0, max_bytes=500).records
    copy = bytes(held)
    apply_retention(log, NOW_MS * 2)
    for path in tmp_path.glob("*.deleted"):
        path.unlink()
    assert bytes(held) == copy


def test_a_log_of_which_nothing_has_expired_costs_a_look_at_its_first_segment(tmp_path: Path) -> None:
    """After a start each check reads the end of a time index: 1,000 of them took one turn of the event loop."""
    log = open_at(tmp_path, SMALL)
    for i in range(60):
        append(log, batch(fill=i))
    log.close()
    log = open_at(tmp_path, SMALL, clean=True)
    log.advance_high_watermark(60)
    assert len(log.segments) > 3
    assert apply_retention(log, NOW_MS) == 0
    looked_at = [segment for segment in list(log.segments)[:-1] if segment.indexes.largest is not UNKNOWN]
    assert looked_at == [log.segments[0]]
