"""An empty log of a new replica, and an event loop that a test runs by turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.storage.directories.recovery import new_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.replication.test_fetcher import TOPIC_ID


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = new_log(LogSpec(OsFiles(), Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, LogConfig()))
    made.room.create_files()
    yield made
    made.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
