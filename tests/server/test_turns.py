"""Work in turns of the loop: how much runs in one turn, who gets the result, and who gets the error."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from ottla.protocol.work import Work
from ottla.server.clock import begin_in_turns, run_in_turns
from tests.manual_clock import ManualClock


def counting(slices: list[int], count: int = 3) -> Work[str]:
    for number in range(count):
        slices.append(number)
        yield
    return "done"


def failing(slices: list[int], at: int) -> Work[str]:
    yield from counting(slices, at)
    raise ZeroDivisionError


async def turns_of(clock: ManualClock, running: asyncio.Task[Any], slices: list[int]) -> list[int]:
    """Return how many slices each turn had."""
    found = []
    while not running.done():
        before = len(slices)
        for _ in range(5):
            await asyncio.sleep(0)
        found.append(len(slices) - before)
        clock.turn()
    return found


async def test_without_a_budget_each_slice_has_a_turn_of_its_own() -> None:
    clock, slices = ManualClock(), list[int]()
    running = asyncio.create_task(run_in_turns(clock, counting(slices)))
    assert await turns_of(clock, running, slices) == [1, 1, 1, 0]
    assert running.result() == "done"


async def test_a_turn_has_as_many_slices_as_begin_within_its_budget() -> None:
    clock, slices = ManualClock(), list[int]()

    def slow() -> Work[None]:
        for _ in counting(slices, 5):
            clock.now_ms += 1
            yield

    running = asyncio.create_task(run_in_turns(clock, slow(), 2_000_000))
    assert await turns_of(clock, running, slices) == [2, 2, 1]


async def test_what_the_work_asks_for_is_done_and_its_failure_is_the_works() -> None:
    def asking() -> Generator[int, int, list[object]]:
        got: list[object] = [(yield 1)]
        try:
            yield 0
        except ZeroDivisionError as error:
            got.append(type(error))
        return got

    async def do(asked: int) -> float:
        return 10 / asked

    assert await run_in_turns(ManualClock(), asking(), do=do) == [10.0, ZeroDivisionError]


def test_the_first_slice_runs_at_once_and_the_result_comes_with_the_last() -> None:
    clock, slices, results = ManualClock(), list[int](), list[str]()
    begin_in_turns(clock, counting(slices), results.append)
    seen = [len(slices)]
    while not results:
        clock.turn()
        seen.append(len(slices))
    assert seen == [1, 2, 3, 3]
    assert results == ["done"] and not clock.armed


def test_work_of_one_slice_is_done_before_the_call_returns() -> None:
    clock, results = ManualClock(), list[str]()
    begin_in_turns(clock, counting([], 0), results.append)
    assert results == ["done"] and not clock.armed


def test_an_error_of_the_first_slice_is_the_callers_and_a_later_one_is_handed_over() -> None:
    clock, errors = ManualClock(), list[Exception]()
    with pytest.raises(ZeroDivisionError):
        begin_in_turns(clock, failing([], 0), failed=errors.append)
    begin_in_turns(clock, failing([], 1), failed=errors.append)
    clock.turn()
    assert [type(each) for each in errors] == [ZeroDivisionError] and not clock.armed
