"""All topics of a cluster are matched in turns, and a client sees only those matches that it may describe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import Any, Never, TypeVar

import pytest

from ottla.broker.groups.modern.offload import NAMES_AT_A_TIME, RegexResolver
from ottla.server.tasks import Tasks

T = TypeVar("T")
TOPICS = [f"topic-{n}" for n in range(100_000)]


class CountingWorkers:
    """Workers that run on the loop, and note the number of names in each call."""

    def __init__(self) -> None:
        self.names: list[int] = []
        self.running = self.running_max = 0

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if len(args) == 2:
            self.names.append(len(args[1]))
        return function(*args)

    def process(self) -> Never:
        raise NotImplementedError

    def apart(self, name: str) -> Never:
        raise NotImplementedError


async def resolve(
    workers: CountingWorkers, *expressions: str, names: list[str] = TOPICS, hidden: Callable[[str], bool] | None = None
) -> Mapping[str, Set[str]] | None:
    found: asyncio.Future[Mapping[str, Set[str]] | None] = asyncio.get_running_loop().create_future()
    tasks = Tasks(asyncio.get_running_loop())
    may_describe = (lambda topic: not hidden(topic)) if hidden else (lambda topic: True)
    resolver = RegexResolver(workers, tasks.spawn)
    resolver(expressions, names, may_describe, lambda topics: None)
    resolver(expressions, names, may_describe, found.set_result)
    return await found


async def test_a_hundred_thousand_topics_are_matched_some_at_a_time_and_one_group_after_the_other() -> None:
    workers = CountingWorkers()
    found = await resolve(workers, "topic-.*", "topic-9999[0-4]", "none")
    assert found is not None
    assert {expression: len(topics) for expression, topics in found.items()} == {
        "topic-.*": len(TOPICS),
        "topic-9999[0-4]": 5,
        "none": 0,
    }
    assert max(workers.names) == NAMES_AT_A_TIME
    assert workers.running_max == 1


async def test_topics_that_the_client_may_not_describe_are_left_out() -> None:
    found = await resolve(CountingWorkers(), "a.*", names=["a1", "a2"], hidden=lambda topic: topic == "a2")
    assert found == {"a.*": {"a1"}}


async def test_an_expression_that_another_coordinator_took_matches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert await resolve(CountingWorkers(), "(?=a)", "a", names=["a"]) == {"(?=a)": set(), "a": {"a"}}
    assert "Couldn't parse regular expression" in caplog.text


async def test_a_resolution_that_fails_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def fail(topic: str) -> bool:
        raise RuntimeError("no entries yet")

    assert await resolve(CountingWorkers(), "a", names=["a"], hidden=fail) is None
    assert "no entries yet" in caplog.text
