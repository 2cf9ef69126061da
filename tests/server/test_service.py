"""Tasks that belong to a node, and the order in which its parts start and stop."""

from __future__ import annotations

import asyncio
import logging

import pytest

from server.service import Parts, Tasks


class Noted:
    def __init__(self, name: str, notes: list[str], fails: str = "") -> None:
        self.name = name
        self.notes = notes
        self.fails = fails

    async def start(self) -> None:
        if self.fails == "start":
            raise OSError("no")
        self.notes.append(f"start {self.name}")

    async def stop(self) -> None:
        if self.fails == "stop":
            raise OSError("no")
        self.notes.append(f"stop {self.name}")


async def test_parts_stop_in_the_opposite_order() -> None:
    notes: list[str] = []
    parts = Parts()
    for name in ("log", "controller", "broker"):
        parts.add(name, Noted(name, notes))
    await parts.start()
    await parts.stop()
    assert notes == ["start log", "start controller", "start broker", "stop broker", "stop controller", "stop log"]


async def test_a_part_that_cannot_start_undoes_those_before_it() -> None:
    notes: list[str] = []
    parts = Parts()
    parts.add("log", Noted("log", notes))
    parts.add("controller", Noted("controller", notes, fails="start"))
    parts.add("broker", Noted("broker", notes))
    with pytest.raises(OSError):
        await parts.start()
    assert notes == ["start log", "stop log"]


async def test_a_part_that_cannot_stop_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    parts = Parts()
    parts.add("log", Noted("log", notes))
    parts.add("controller", Noted("controller", notes, fails="stop"))
    await parts.start()
    await parts.stop()
    assert notes[-1] == "stop log"
    assert "Could not stop controller cleanly" in caplog.text


async def test_a_task_that_fails_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    told: list[BaseException] = []
    tasks = Tasks(asyncio.get_running_loop(), told.append)

    async def breaks() -> None:
        raise ValueError("a bug")

    task = tasks.spawn(breaks(), "breaks")
    with caplog.at_level(logging.ERROR):
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [str(failure) for failure in told] == ["a bug"]
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
