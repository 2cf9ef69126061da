"""A request that a broker has forwarded in an EnvelopeRequest gets a response even if it runs into a bug of the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.network.context import RequestContext
from tests.broker.cluster.test_lifecycle import Client
from tests.controller.handlers.test_handlers import connected
from tests.controller.node import forwarded


async def test_a_bug_in_the_decision_is_an_error_of_the_forwarded_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    async with connected(tmp_path) as (node, _):
        monkeypatch.setattr("ottla.controller.handlers.topics.create_topics", broken)
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        context = RequestContext(ApiKey.CREATE_TOPICS, 7, "tool", Client())
        try:
            response = await forwarded(node.channel, context, CreateTopicsRequest(topics=[topic]))
        except KafkaError as error:
            assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert response.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert ZeroDivisionError in [record.exc_info[0] for record in caplog.records if record.exc_info]
