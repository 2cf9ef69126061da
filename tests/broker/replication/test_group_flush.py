"""A leader that flushes before it acknowledges (flush.messages=1), and a disk without room."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.replication.disk_work import BACKOFF_MS, GroupFlush
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.errors import ErrorCode
from ottla.server.world import World
from ottla.storage.directories.recovery import open_log
from ottla.storage.errors import DiskFull, OutOfResources, StorageFailure
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_fetcher_answers import NOW_MS, TOPIC_ID, Workers
from tests.manual_clock import ManualClock

FULL = DiskFull("t-0", OSError(errno.ENOSPC, "No space left on device"))
NO_DESCRIPTOR = OutOfResources("t-0", OSError(errno.EMFILE, "Too many open files"))
BROKEN = StorageFailure("t-0", OSError(errno.EIO, "Input/output error"))


class Leader:
    """A partition that this node leads without followers, and whose first flush fails."""

    def __init__(self, own_log: Log, monkeypatch: pytest.MonkeyPatch, failure: StorageFailure) -> None:
        own_log.update_config(LogConfig(flush_messages=1))
        self.clock, self.workers = ManualClock(), Workers()
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        self.failures = [failure]
        world = World(self.clock, Random(0), OsFiles(), None, self.workers, lambda task, name: self.tasks.append(task))
        self.partition = made_partition(1, "t", 0, TOPIC_ID, Wakeups(self.clock), GroupFlush(world), 30_000)
        self.partition.become_leader(own_log, 1, 1, (1,), (1,), NOW_MS)
        monkeypatch.setattr(self.workers, "run", self._run)

    async def _run(self, function: Callable[..., Any], *args: object) -> Any:
        if self.failures:
            asyncio.get_running_loop().call_soon(self.clock.advance, BACKOFF_MS)
            raise self.failures.pop()
        return function(*args)

    def append(self) -> list[ErrorCode]:
        """Append a record; return the list that will get its producer's error code."""
        answers: list[ErrorCode] = []
        appended = self.partition.append(batch([b"x"]), -1, NOW_MS)
        self.partition.when_committed(appended.last_offset, answers.append)
        for task in self.tasks:
            asyncio.run(task)
        return answers


@pytest.mark.parametrize("shortage", [FULL, NO_DESCRIPTOR], ids=["full disk", "no descriptor"])
def test_a_record_whose_flush_found_no_room_is_committed_when_there_is_some(
    log: Log, monkeypatch: pytest.MonkeyPatch, shortage: DiskFull
) -> None:
    """Before the fix the flush was given up, and waiting requests were answered KAFKA_STORAGE_ERROR. A transaction coordinator
    that waited for the commit of loaded records never wrote the markers: the transaction hung until another broker led its
    partition (seed 262).
    """
    assert Leader(log, monkeypatch, shortage).append() == [ErrorCode.NONE]
    assert log.recovery_point == log.high_watermark == 1


def test_a_flush_that_fails_for_good_is_not_repeated(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Leader(log, monkeypatch, BROKEN).append() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert log.high_watermark == 0


def test_a_flush_that_fails_for_good_after_its_log_has_moved_to_another_disk_fails_no_producer(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The waiting records are in the new directory as well, and are flushed there."""
    spec = LogSpec(
        OsFiles(), Mappings(), str(tmp_path / "moved" / "t-0"), "t", 0, TOPIC_ID, LogConfig(flush_messages=1)
    )
    moved = open_log(spec, clean=True)
    leader = Leader(log, monkeypatch, BROKEN)
    flush = leader.workers.run

    async def move_meanwhile(function: Callable[..., Any], *args: object) -> Any:
        if not moved.log_end_offset:
            moved.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
            leader.partition.log_replaced(moved)
        return await flush(function, *args)

    monkeypatch.setattr(leader.workers, "run", move_meanwhile)
    assert leader.append() == [ErrorCode.NONE]
    assert moved.recovery_point == moved.high_watermark == 1
    moved.close()
