"""Internal topics of streams groups: asked for once at a time, and not again for a while after the controller refused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.broker.cluster.streams_topics import ERRORS_MAX, StreamsTopics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.server.world import World
from tests.broker.cluster.test_topic_creation import Controller
from tests.broker.replication.test_partition import Timers

KEEP_MS = 10_000


class Broker:
    def __init__(self) -> None:
        self.clock = Timers()
        self.controller = Controller()
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        world = World(self.clock, None, None, None, None, lambda task, name: self.tasks.append(task))
        self.topics = StreamsTopics(world, self.controller)

    def find_missing(self, *names: str) -> None:
        self.topics.create({name: CreatableTopic(name=name, num_partitions=3) for name in names}, KEEP_MS)

    def controller_answers(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            asyncio.run(task)


def test_a_topic_is_asked_for_once_at_a_time() -> None:
    broker = Broker()
    broker.find_missing("a")
    broker.find_missing("a", "b")
    broker.controller_answers()
    assert broker.controller.requests == [["a"], ["b"]]
    broker.find_missing("a")
    broker.controller_answers()
    assert broker.controller.requests[2:] == [["a"]]


def test_a_refusal_is_known_until_its_time_is_over() -> None:
    broker = Broker()
    broker.controller.codes = {"a": ErrorCode.INVALID_CONFIG}
    broker.find_missing("a", "b")
    broker.controller_answers()
    assert broker.topics.errors(["a", "b"]) == {"a": ErrorCode.INVALID_CONFIG.message}
    broker.find_missing("a")
    assert not broker.tasks
    broker.clock.advance(KEEP_MS)
    assert not broker.topics.errors(["a"])
    broker.find_missing("a")
    assert len(broker.tasks) == 1
    broker.controller_answers()


def test_a_controller_that_is_away_is_a_refusal_too() -> None:
    broker = Broker()
    broker.controller.is_there = False
    broker.find_missing("a")
    broker.controller_answers()
    assert list(broker.topics.errors(["a"])) == ["a"]


def test_the_newest_refusals_are_kept() -> None:
    broker = Broker()
    names = [f"t{index}" for index in range(ERRORS_MAX + 10)]
    broker.controller.codes = dict.fromkeys(names, ErrorCode.INVALID_CONFIG)
    broker.find_missing(*names)
    broker.controller_answers()
    assert list(broker.topics.errors(names)) == names[-ERRORS_MAX:]
