"""Internal topics of streams groups: asked for once at a time, and not again for a while after the controller refused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from ipaddress import ip_address
from typing import Any, cast

from ottla.broker.cluster.topic_creation import ERRORS_MAX, StreamsTopics
from ottla.protocol.api import ApiKey, decode_request_header
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.control_messages import DefaultPrincipalData
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.server.network.context import RequestContext
from ottla.server.principal import Principal
from ottla.server.world import World
from tests.broker.cluster.test_topic_creation import Controller
from tests.manual_clock import ManualClock

KEEP_MS = 10_000


class Client:
    """The connection of a member, as far as an envelope names it."""

    id, peer_host, principal = "client", "10.1.2.3", Principal("User", "alice")


CONTEXT = RequestContext(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, "app-1", cast(Any, Client()))


class EnvelopedController(Controller):
    """Opens the envelopes, and keeps the principals of the requests in them."""

    versions: Mapping[int, tuple[int, int]] = {ApiKey.CREATE_TOPICS: (2, 6)}

    def __init__(self) -> None:
        super().__init__()
        self.clients: set[tuple[str | None, str, str]] = set()
        self.envelope_error = ErrorCode.NONE

    async def request(self, request: EnvelopeRequest, timeout_ms: int = 0) -> EnvelopeResponse:
        data = request.request_data
        key, version, correlation_id, client_id, position = decode_request_header(data, 0, len(data))
        assert (key, version) == (ApiKey.CREATE_TOPICS, 6)
        principal = decode(DefaultPrincipalData, (request.request_principal or b"")[2:], 0)
        self.clients.add((client_id, principal.name, str(ip_address(request.client_host_address))))
        response = await super().request(decode(CreateTopicsRequest, data[position:], version))
        body = correlation_id.to_bytes(4, "big") + b"\0" + encode(response, version)
        return EnvelopeResponse(response_data=body, error_code=self.envelope_error)


class Broker:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controller = EnvelopedController()
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        world = World(self.clock, None, None, None, None, lambda task, name: self.tasks.append(task))
        self.topics = StreamsTopics(world, self.controller)

    def find_missing(self, *names: str) -> None:
        self.topics.create({name: CreatableTopic(name=name, num_partitions=3) for name in names}, KEEP_MS, CONTEXT)

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


def test_the_controller_is_asked_in_the_name_of_the_members_client() -> None:
    """The controller applies the ACLs and quotas of that client, and its audit log names the client that has caused the
    creation of the topics.
    """
    broker = Broker()
    broker.find_missing("a")
    broker.controller_answers()
    assert broker.controller.clients == {("app-1", "alice", "10.1.2.3")}


def test_an_error_of_the_envelope_is_a_refusal_too() -> None:
    broker = Broker()
    broker.controller.envelope_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.find_missing("a")
    broker.controller_answers()
    assert list(broker.topics.errors(["a"])) == ["a"]


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
