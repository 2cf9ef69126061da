"""The log line of a start that takes long."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from ottla.node.load_and_close import EVERY_MS, load_logs
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.files import OsFiles
from ottla.storage.log_config import LogConfig
from tests.manual_clock import ManualClock
from tests.storage.logs_for_tests import NOW_MS, SMALL, append, batch

FILES = OsFiles()


def test_a_start_that_takes_long_says_how_far_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_meta_properties(FILES, str(tmp_path), MetaProperties("cluster", 1, bytes([1]) * 16))
    before = Logs(FILES, open_log_dirs(FILES, [str(tmp_path)], None, 1), Random(1))
    before.open_all(lambda topic, topic_id: SMALL, NOW_MS)
    for index in range(4):
        append(before.create("t", index, bytes([1]) * 16, SMALL), batch())
    before.close_all()
    (tmp_path / "no-partition-of-a-topic").mkdir()
    logs = Logs(FILES, open_log_dirs(FILES, [str(tmp_path)], None, 1), Random(1))
    clock = ManualClock()
    asked: list[str] = []

    def slow(topic: str, topic_id: bytes) -> LogConfig:
        asked.append(topic)
        clock.advance(EVERY_MS)
        return SMALL

    with caplog.at_level(logging.INFO, "ottla.node"):
        load_logs(logs, slow, clock, NOW_MS)
    lines = [record.message for record in caplog.records if record.message.startswith("Loading logs")]
    assert asked == ["t"] * 4
    assert lines == [f"Loading logs: {n} of 4, 0.2 a second, about {5 * (4 - n)} s left" for n in (1, 2, 3)]
