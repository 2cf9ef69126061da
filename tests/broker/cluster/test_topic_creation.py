"""Requests that wait for topics which they have asked for: woken by the metadata, a refusal or their deadline, and by no polling."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.broker.cluster.topic_creation import TopicCreation, creatable
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.image import MetadataDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import TopicRecord
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.server.clock import TimerWheel
from ottla.server.config.node_config import NodeConfig
from ottla.server.world import World
from tests.manual_clock import ManualClock

WAIT_MS = 1_000
NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


class Controller:
    """Answers each request with these codes, or not at all."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.codes: dict[str, ErrorCode] = {}
        self.is_there = True

    async def request(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        names = [topic.name for topic in request.topics]
        self.requests.append(names)
        if not self.is_there:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        results = [CreatableTopicResult(name=name, error_code=self.codes.get(name, ErrorCode.NONE)) for name in names]
        return CreateTopicsResponse(topics=results)


class Broker:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wheel = TimerWheel(self.clock)
        self.controller = Controller()
        self.metadata = MetadataCache(1, "cluster")
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        # The creation of topics uses only tasks of the world, which the test runs.
        world = World(self.clock, None, None, None, None, lambda task, name: self.tasks.append(task))
        self.creation = TopicCreation(
            world, BrokerConfigs(NodeConfig(NODE)), self.metadata, self.controller, self.wheel
        )
        self.done: list[str] = []

    def ask(self, who: str, *topics: str) -> Any:
        return self.creation.create(topics, WAIT_MS, lambda: self.done.append(who))

    def controller_answers(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            asyncio.run(task)

    def metadata_comes(self, *topics: str) -> None:
        delta = MetadataDelta(self.metadata.image)
        for name in topics:
            delta.replay(TopicRecord(name=name, topic_id=name.encode().ljust(16, b"-")))
        self.metadata.image = delta.apply(1, 1)
        self.creation.on_metadata_update(delta, self.metadata.image)

    @property
    def is_empty(self) -> bool:
        return len(self.wheel) == 0 and not self.creation._waiting


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_thousand_that_wait_for_a_topic_cost_one_request_one_timer_and_no_look(broker: Broker) -> None:
    for number in range(1_000):
        broker.ask(str(number), "t")
    assert len(broker.tasks) == len(broker.clock.armed) == 1
    broker.controller_answers()
    broker.clock.advance(WAIT_MS // 2)
    assert broker.done == []
    broker.metadata_comes("other")
    assert broker.done == []
    broker.metadata_comes("t")
    assert len(broker.done) == 1_000 and broker.is_empty
    assert broker.controller.requests == [["t"]]


def test_who_wants_two_topics_waits_for_both(broker: Broker) -> None:
    broker.ask("both", "a", "b")
    broker.ask("one", "a")
    broker.controller_answers()
    broker.metadata_comes("a")
    assert broker.done == ["one"]
    broker.metadata_comes("b")
    assert broker.done == ["one", "both"] and broker.is_empty


def test_a_refusal_ends_the_wait_for_that_topic_only(broker: Broker) -> None:
    broker.controller.codes["bad"] = ErrorCode.INVALID_REPLICATION_FACTOR
    broker.ask("refused", "bad")
    broker.ask("good", "good")
    broker.ask("both", "bad", "good")
    broker.controller_answers()
    assert broker.done == ["refused"]
    broker.metadata_comes("good")
    assert broker.done == ["refused", "good", "both"] and broker.is_empty


def test_without_a_controller_no_request_waits(broker: Broker) -> None:
    broker.controller.is_there = False
    broker.ask("asks", "t")
    broker.controller_answers()
    assert broker.done == ["asks"] and broker.is_empty
    broker.controller.is_there = True
    broker.ask("asks again", "t")
    broker.controller_answers()
    assert broker.controller.requests == [["t"], ["t"]]


def test_a_topic_that_does_not_come_in_time_is_not_waited_for_longer(broker: Broker) -> None:
    broker.ask("asks", "t")
    broker.clock.advance(WAIT_MS + 10)
    assert broker.done == ["asks"] and broker.is_empty
    broker.controller_answers()


def test_who_has_gone_is_forgotten(broker: Broker) -> None:
    broker.ask("gone", "t")()
    broker.ask("stays", "t")
    broker.controller_answers()
    broker.metadata_comes("t")
    assert broker.done == ["stays"] and broker.is_empty


def test_one_whose_answer_fails_keeps_no_other_waiting(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    broker.creation.create(["t"], WAIT_MS, broken)
    broker.ask("other", "t")
    broker.controller_answers()
    broker.metadata_comes("t")
    assert broker.done == ["other"] and broker.is_empty
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("properties", "partitions", "factor"),
    [
        ({}, -1, -1),
        ({"num.partitions": "4"}, 4, -1),
        ({"default.replication.factor": "2"}, -1, 2),
        ({"num.partitions": "1", "default.replication.factor": "1"}, 1, 1),
    ],
)
def test_what_a_broker_sets_is_asked_for_and_the_rest_is_the_controllers(
    properties: dict[str, str], partitions: int, factor: int
) -> None:
    """KAFKA-19655: a broker's num.partitions counts only if its file has it; -1 stands for the controller's."""
    asked = creatable(BrokerConfigs(NodeConfig({**NODE, **properties})), "t")
    assert (asked.num_partitions, asked.replication_factor) == (partitions, factor)
