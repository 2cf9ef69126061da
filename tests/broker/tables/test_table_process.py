"""The process of tables has a deadline for each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.tables import table_process
from ottla.broker.tables.table_process import DOUBLINGS_MAX, TableProcess
from ottla.server.table_work import TableJob, TableReport, TableSettings
from ottla.server.worker_process import WorkerEnded

JOB = TableJob("c", "id", "orders", TableSettings("delta", "/lake", "files", "bytes", "bytes", {}), 1, (), commits=True)


class FakeProcess:
    """A worker process that answers, hangs or dies."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.made = self.closed = self.prepared = 0
        self.start_seconds = 0.0

    async def make(self, factory: Callable[..., object], *args: object) -> None:
        self.made += 1

    async def call(self, method: str, *args: object) -> Any:
        if method == "prepare":
            self.prepared += 1
            await asyncio.sleep(self.start_seconds)
            return None
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed += 1


async def test_one_that_hangs_is_ended_and_the_next_job_has_another() -> None:
    process = FakeProcess(None, TableReport(rows=7))
    tables = TableProcess(process, object)
    report = await tables.work(JOB, 20)
    assert report.waits == "no answer of store or catalog in 20 ms: the process was ended"
    assert (process.made, process.closed) == (1, 1)
    assert (await tables.work(JOB, 20_000)).rows == 7
    assert process.made == 2


async def test_the_libraries_of_a_new_process_are_imported_before_the_time_of_the_answer_begins() -> None:
    process = FakeProcess(TableReport(rows=7), TableReport(rows=8))
    process.start_seconds = 0.1
    tables = TableProcess(process, object)
    assert [(await tables.work(JOB, 50)).rows for _ in range(2)] == [7, 8]
    assert (process.made, process.prepared, process.closed) == (1, 1, 0)


async def test_a_start_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_process, "START_MS_MAX", 20)
    process = FakeProcess()
    process.start_seconds = 3_600
    report = await TableProcess(process, object).work(JOB, 20_000)
    assert report.waits and (process.made, process.closed) == (1, 1)


async def test_a_topic_that_had_no_answer_has_twice_the_time_at_its_next_attempt() -> None:
    """The deadline stays doubled until an answer has come. Another topic has the configured one."""
    other = JOB._replace(topic_id="other")
    process = FakeProcess(*[None] * 6, TableReport(rows=7), None)
    tables = TableProcess(process, object)
    waits = [(await tables.work(job, 2)).waits for job in (JOB, JOB, JOB, JOB, JOB, other, JOB, JOB)]
    times = [text.partition(" ms")[0].rpartition(" ")[2] for text in waits]
    assert times == ["2", "4", "8", "16", "16", "2", "", "2"] and 2 << DOUBLINGS_MAX == 16
    assert (process.made, process.prepared) == (7, 7)


async def test_one_that_was_killed_is_started_again() -> None:
    process = FakeProcess(WorkerEnded("the worker process 7 has ended"), TableReport(), TableReport())
    tables = TableProcess(process, object)
    assert (await tables.work(JOB, 20_000)).waits == "the worker process 7 has ended"
    assert not (await tables.work(JOB, 20_000)).waits
    assert not (await tables.work(JOB, 20_000)).waits
    assert process.made == 2


async def test_a_plain_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_process, "lacking", lambda extra: "pyarrow")
    monkeypatch.setattr(table_process, "install", lambda extra: f"pip install 'ottla[{extra}]'")
    process = FakeProcess()
    report = await TableProcess(process, object).work(JOB, 20_000)
    assert report.waits == "pyarrow is not installed here: pip install 'ottla[tables]'"
    assert not process.made
