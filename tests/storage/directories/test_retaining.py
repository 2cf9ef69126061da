"""Retention of all logs in a directory: it runs in turns, and goes on whatever happens to one log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.protocol.work import RECORDS_A_TURN, DiskJob
from ottla.storage.directories import open_logs
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import LOOKED_AT, retaining
from ottla.storage.errors import StorageFailure
from ottla.storage.log import retention
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.storage.chores import retain
from tests.storage.directories.test_logs import A, B, formatted, opened
from tests.storage.logs_for_tests import NOW_MS, append, batch

CONFIG = LogConfig(retention_ms=1_000, segment_bytes=2_000)
LATER_MS = NOW_MS + 60_000


def filled(path: Path, partitions: int) -> Logs:
    formatted(path)
    logs = opened(path)
    for index in range(partitions):
        log = logs.create("orders", index, A, CONFIG)
        append(log, batch())
        log.advance_high_watermark(1)
    return logs


def test_a_turn_looks_at_a_bounded_number_of_logs(tmp_path: Path) -> None:
    partitions = 3 * RECORDS_A_TURN // LOOKED_AT
    logs = filled(tmp_path, partitions)
    looked: list[Log] = []
    begin = retention.begin_retention

    def noted(log: Log, now_ms: int, **options: bool) -> object:
        looked.append(log)
        return begin(log, now_ms, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_logs, "begin_retention", noted)
        turns = []
        for _ in retaining(logs.open, logs.directories[0], NOW_MS):
            turns.append(len(looked))
            looked.clear()
    assert sum(turns) + len(looked) == partitions
    assert len(turns) >= 2 and max(turns) <= RECORDS_A_TURN // LOOKED_AT + 1


def test_one_write_of_the_log_starts_serves_all_logs(tmp_path: Path) -> None:
    logs = filled(tmp_path, 20)
    changed: list[Log] = []
    writes = []

    def all_of_it() -> object:
        changed.extend((yield from retaining(logs.open, logs.directories[0], LATER_MS)))

    for asked in all_of_it():
        if isinstance(asked, DiskJob):
            before = (tmp_path / "log-start-offset-checkpoint").stat().st_mtime_ns if writes else 0
            asked.run()
            if "orders 0 1" in _checkpoint(tmp_path):
                writes.append(before)
    assert len(changed) == 20 and len(writes) == 1
    assert retain(logs, LATER_MS) == []


def test_a_log_that_fails_keeps_no_other_from_making_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logs = filled(tmp_path, 3)
    begin = retention.begin_retention

    def fail(log: Log, now_ms: int, **options: bool) -> object:
        if log.partition == 0:
            raise StorageFailure(log.directory, OSError(errno.EIO, "bad block"))
        if log.partition == 1:
            raise AssertionError("a mistake of ours")
        return begin(log, now_ms, **options)

    monkeypatch.setattr(open_logs, "begin_retention", fail)
    assert [log.partition for log in retain(logs, LATER_MS)] == [2]
    assert "retention of Log(orders-0" in caplog.text and "a mistake of ours" in caplog.text


def test_a_log_that_is_deleted_in_between_is_left_alone(tmp_path: Path) -> None:
    logs = filled(tmp_path, 3)
    work = retaining(logs.open, logs.directories[0], LATER_MS)
    asked = next(work)
    logs.delete(A, 1)
    logs.create("orders", 1, B, CONFIG)
    while asked is None or isinstance(asked, DiskJob):
        if asked is not None:
            asked.run()
        try:
            asked = next(work)
        except StopIteration as end:
            assert [log.partition for log in end.value] == [0, 2]
            break


def _checkpoint(path: Path) -> str:
    file = path / "log-start-offset-checkpoint"
    return file.read_text() if file.exists() else ""
