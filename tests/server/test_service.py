"""Tasks that belong to a node."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.server.tasks import Tasks


async def test_a_task_that_fails_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[BaseException] = []
    tasks = Tasks(asyncio.get_running_loop(), reported.append)

    async def breaks() -> None:
        raise ValueError("a bug")

    task = tasks.spawn(breaks(), "breaks")
    with caplog.at_level(logging.ERROR):
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [str(failure) for failure in reported] == ["a bug"]
    assert "Task breaks failed" in caplog.text
    assert len(tasks) == 0


async def test_closing_waits_for_tasks_and_for_those_they_still_begin() -> None:
    tasks = Tasks(asyncio.get_running_loop())
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("child")

    async def parent() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            tasks.spawn(child(), "child")
            ended.append("parent")

    tasks.spawn(parent(), "parent")
    await asyncio.sleep(0)
    await tasks.close()
    assert ended[0] == "parent"
    assert len(tasks) == 0
