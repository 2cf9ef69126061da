"""A Produce request whose last batches are prepared later, and fail: its response has the outcome of every partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.produce.append import rest_of
from ottla.broker.produce.handler import joined
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.server.network.context import Answer, Reply, RequestContext

VERSION = 9
Outcome = tuple[str, int, int, int]


class Request:
    """A request whose partitions 0 of "a" and 0 of "b" are appended already; the batches of "b" from partition 1 on are the
    rest.
    """

    def __init__(self, acks: int) -> None:
        rows = {"a": [0], "b": [0, 1], "c": [0]}
        topics = [TopicProduceData(n, partition_data=[PartitionProduceData(i) for i in p]) for n, p in rows.items()]
        whole = ProduceRequest(acks=acks, topic_data=topics)
        self.rest = rest_of(whole, topics[1], topics[1].partition_data[1])
        self.closed_for: list[str] = []
        connection = SimpleNamespace(close=self.closed_for.append)
        self.context = cast(RequestContext, SimpleNamespace(api_version=VERSION, connection=connection))

    def joined(
        self, first: Answer[ProduceResponse | None], second: Reply[ProduceResponse | None]
    ) -> list[ProduceResponse | KafkaError | None]:
        """Return the response, if there is one."""
        answer = joined(self.rest, self.context, first, second)
        assert isinstance(answer, Reply)
        responses: list[ProduceResponse | KafkaError | None] = []
        answer.when_done(responses.append)
        return responses


def appended() -> ProduceResponse:
    rows = [TopicProduceResponse(name, partition_responses=[PartitionProduceResponse(0, 0, 7)]) for name in "ab"]
    return ProduceResponse(responses=rows)


def outcomes(response: object) -> list[Outcome]:
    assert isinstance(response, ProduceResponse)
    return [
        (topic.name, row.index, row.error_code, row.base_offset)
        for topic in response.responses
        for row in topic.partition_responses
    ]


FAILED: list[Outcome] = [
    ("a", 0, ErrorCode.NONE, 7),
    ("b", 0, ErrorCode.NONE, 7),
    ("b", 1, ErrorCode.UNKNOWN_SERVER_ERROR, -1),
    ("c", 0, ErrorCode.UNKNOWN_SERVER_ERROR, -1),
]


def test_what_was_appended_before_keeps_its_offsets_when_the_rest_cannot_be_prepared() -> None:
    second: Reply[ProduceResponse | None] = Reply()
    responses = Request(acks=1).joined(appended(), second)
    assert not responses
    second.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert outcomes(responses[0]) == FAILED


@pytest.mark.parametrize("is_first_last", [False, True])
def test_it_is_the_same_when_what_was_appended_is_committed_before_or_after_that(is_first_last: bool) -> None:
    first: Reply[ProduceResponse | None] = Reply()
    second: Reply[ProduceResponse | None] = Reply()
    responses = Request(acks=-1).joined(first, second)
    for is_first in (not is_first_last, is_first_last):
        assert not responses
        if is_first:
            first.complete(appended())
        else:
            second.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert outcomes(responses[0]) == FAILED


def test_the_connection_of_a_producer_that_gets_no_response_is_closed() -> None:
    request = Request(acks=0)
    second: Reply[ProduceResponse | None] = Reply()
    responses = request.joined(None, second)
    assert not request.closed_for
    second.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert responses == [None]
    assert request.closed_for == ["a produce request with acks=0 failed"]
