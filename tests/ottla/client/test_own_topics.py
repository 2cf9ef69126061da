"""A command's own topic while a broker loses its response. The test plays the brokers."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterError
from ottla.client.topics import create_own_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse


def created(code: ErrorCode) -> str:
    async def request(request: CreateTopicsRequest) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=request.topics[0].name, error_code=code)])

    cluster: Any = SimpleNamespace(world=SimpleNamespace(rng=Random(1)), timeout_ms=5_000, request=request)
    return asyncio.run(create_own_topic(cast(ClusterClient, cluster), "ottla-perf-", 1, -1, {}))


def test_a_topic_that_a_first_attempt_has_made_whose_response_was_lost_is_the_commands_own() -> None:
    assert created(ErrorCode.TOPIC_ALREADY_EXISTS).startswith("ottla-perf-")


def test_a_topic_that_may_not_be_made_is_refused() -> None:
    with pytest.raises(ClusterError) as refused:
        created(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
