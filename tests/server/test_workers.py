"""Worker threads: they are bounded and named, and lose no exception."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.server.workers import ThreadWorkers
from tests.server.tiny_node import until


async def test_work_runs_on_named_threads_and_gives_its_result() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop(), threads=2, name="disk")
    names = await asyncio.gather(*(workers.run(lambda: threading.current_thread().name) for _ in range(20)))
    assert {name.rpartition("_")[0] for name in names} == {"disk"}
    assert len(set(names)) <= 2
    assert await workers.run(divmod, 7, 3) == (2, 1)
    workers.close()


async def test_an_exception_comes_back_to_the_caller() -> None:
    workers = ThreadWorkers(asyncio.get_running_loop())
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 1, 0)
    workers.close()


async def test_a_call_that_waits_for_another_machine_has_its_own_thread_and_one_that_is_given_up_does_not_begin() -> (
    None
):
    workers = ThreadWorkers(asyncio.get_running_loop(), threads=1)
    apart, gate, begun = workers.apart("kerberos"), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait(10)

    waiting = asyncio.ensure_future(apart.run(wait))
    await until(begun.is_set)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(apart.run(pytest.fail, "it was given up before it began"), 0.01)
    assert await workers.run(divmod, 7, 3) == (2, 1)
    gate.set()
    await waiting
    workers.close()


async def test_a_call_of_another_machine_that_never_comes_back_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.server.workers.LONE_END_S", 0.01)
    workers, gate, begun = ThreadWorkers(asyncio.get_running_loop()), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        gate.wait(60)

    hanging = asyncio.ensure_future(workers.apart("another machine").run(hang))
    await until(begun.is_set)
    (thread,) = (each for each in threading.enumerate() if each.name == "another machine")
    assert thread.daemon, "the interpreter waits for others"
    workers.close()
    assert thread.is_alive()
    gate.set()
    await hanging
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.timeout(20)
async def test_threads_apart_that_are_idle_or_have_not_begun_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.server.workers.LONE_END_S", 600)
    workers = ThreadWorkers(asyncio.get_running_loop())
    workers.apart("never used")
    assert await workers.apart("used").run(divmod, 7, 3) == (2, 1)
    workers.close()


async def test_callers_beyond_the_bound_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.workers.QUEUED_MAX", 2)
    workers = ThreadWorkers(asyncio.get_running_loop(), threads=1)
    gate, begun = threading.Event(), []

    def work(number: int) -> int:
        begun.append(number)
        gate.wait(10)
        return number

    running = [asyncio.ensure_future(workers.run(work, number)) for number in range(5)]
    await until(lambda: begun)
    assert workers._executor._work_queue.qsize() <= 1
    gate.set()
    assert await asyncio.gather(*running) == [0, 1, 2, 3, 4]
    workers.close()
