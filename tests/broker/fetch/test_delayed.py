"""Delayed fetches over the wire: the events that wake them and end them. One client's end does not end the fetch of another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchRequest
from tests.broker.conftest import Node
from tests.broker.fetch.test_handler import FOREVER_MS, NAMED, append, fetch, views
from tests.broker.records import batch
from tests.broker.wire import Wire

RECEIVE_SECONDS_MAX = 20


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        opened.sock.settimeout(RECEIVE_SECONDS_MAX)
        yield opened


def records_of(wire: Wire) -> list[int]:
    """Return how many batches the next Fetch answer has, by partition."""
    answer = wire.receive(ApiKey.FETCH, NAMED)
    return [len(views(p.records or b"")) for topic in answer.responses for p in topic.partitions]


def test_a_second_request_of_a_session_ends_the_wait_of_the_first(node: Node, wire: Wire) -> None:
    node.create("overtaken")
    session = wire.request(fetch("overtaken", session_epoch=0), NAMED).session_id
    for epoch, max_wait_ms in ((1, FOREVER_MS), (2, 0)):
        wire.send(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session, session_epoch=epoch), NAMED)
    assert [records_of(wire), records_of(wire)] == [[], []]


def test_a_fetch_that_found_too_little_is_woken_by_more_in_the_same_partition(node: Node, wire: Wire) -> None:
    node.create("growing")
    append(node, "growing", b"x")
    wire.send(fetch("growing", max_wait_ms=FOREVER_MS, min_bytes=2 * len(batch([b"x"]))), NAMED)
    append(node, "growing", b"x")
    assert records_of(wire) == [2]
