"""DeleteRecords made durable: many requests share a write, none is answered before it, and no other writer's is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.replication.disk_work import LogStartWrites
from ottla.server.tasks import Tasks
from ottla.server.world import World
from ottla.storage import checkpoint
from ottla.storage.directories import log_checkpoints
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import DiskFull
from ottla.storage.files import OsFiles
from ottla.storage.log.retention import delete_records
from tests.broker.records import batch
from tests.storage.directories.test_logs import NOW_MS, A, B, formatted, opened
from tests.storage.logs_for_tests import SMALL
from tests.workers import OneQueue


class Steps(OneQueue):
    """Workers that do their next job when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.done = 0

    async def run(self, function: Callable[..., Any], *args: object) -> Any:
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn
        self.done += 1
        return function(*args)

    async def step(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.waiting.pop(0).set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)


class Node:
    """Two logs of ten records each, in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        formatted(path)
        self.logs = opened(path)
        self.steps = Steps()
        for topic, topic_id in (("orders", A), ("events", B)):
            log = self.logs.create(topic, 0, topic_id, SMALL)
            for _ in range(10):
                log.append(batch([b"x"]), leader_epoch=0, now_ms=NOW_MS)
            log.advance_high_watermark(10)
        tasks = Tasks(asyncio.get_running_loop())
        world = World(None, Random(0), self.logs.files, None, self.steps, tasks.spawn)
        self.writes = LogStartWrites(world, self.logs)
        self.answers: list[bool] = []

    @property
    def directory(self) -> LogDir:
        return self.logs.directories[0]

    def delete(self, topic_id: bytes, offset: int) -> None:
        log = self.logs.open.get(topic_id, 0)
        assert log is not None
        delete_records(log, offset)
        self.writes.when_written(self.directory, self.answers.append)

    def on_disk(self) -> dict[tuple[str, int], int]:
        return dict(checkpoint.read_offsets(OsFiles(), f"{self.directory.path}/{checkpoint.LOG_START}"))


async def test_requests_that_arrive_during_a_write_share_the_next_one_and_none_is_answered_before_its_own(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.delete(A, 1)
    for offset in range(2, 10):
        await asyncio.sleep(0)
        node.delete(A, offset)
    assert node.answers == [], "nothing is on the disk yet"
    await node.steps.step()
    assert node.answers == [True], "the others came after the first write had begun"
    await node.steps.step()
    assert (node.answers, node.on_disk()) == ([True] * 9, {("orders", 0): 9})
    assert node.steps.done == 2


async def test_a_topic_that_is_deleted_while_a_write_waits_is_not_in_it(tmp_path: Path) -> None:
    """The log start offset of a deleted topic must not be written again: a new topic of its name would begin with it."""
    node = Node(tmp_path)
    node.delete(A, 3)
    await asyncio.sleep(0)
    log = node.logs.open.get(B, 0)
    assert log is not None
    delete_records(log, 5)
    node.logs.checkpoints.write_log_starts()
    node.logs.delete(B, 0, NOW_MS)
    await node.steps.step()
    assert (node.answers, node.on_disk()) == ([True], {("orders", 0): 3})


async def test_a_full_disk_is_an_error_and_the_next_request_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)

    def full(*args: object) -> None:
        raise DiskFull(str(tmp_path), "no space")

    with monkeypatch.context() as patched:
        patched.setattr(log_checkpoints, "write_offsets", full)
        node.delete(A, 3)
        await node.steps.step()
    assert (node.answers, node.directory.online) == ([False], True)
    node.delete(A, 4)
    await node.steps.step()
    assert (node.answers, node.on_disk()) == ([False, True], {("orders", 0): 4})


async def test_a_directory_that_has_disappeared_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)

    def gone(*args: object) -> None:
        raise FileNotFoundError(str(tmp_path))

    with monkeypatch.context() as patched:
        patched.setattr(log_checkpoints, "write_offsets", gone)
        node.delete(A, 3)
        await node.steps.step()
    assert node.answers == [False]
