"""The connection of a non-Kafka or broken client alone is closed, with one log line that says what the client looked like."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.route import Route
from tests.effort import examples
from tests.server.tiny_node import (
    API_VERSIONS,
    HEARTBEAT,
    LIST_GROUPS,
    PRODUCE,
    TinyNode,
    heartbeat,
    request,
    tiny_node,
    until,
)

CASES = {
    "a negative size": (struct.pack(">i", -5) + b"abc", "size = -5"),
    "a size above the limit": (struct.pack(">i", 2_000_000), "size = 2000000 larger than 1000000"),
    "a frame without a header": (struct.pack(">i", 4) + b"abcd", "no header"),
    "an empty frame": (struct.pack(">i", 0), "no header"),
    "a TLS handshake": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake"),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP request"),
    "an SSH client": (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    "an API that does not exist": (
        request(HEARTBEAT, 0, b"").replace(b"\0\x0c\0\0", b"\x03\xe7\0\0", 1),
        "Unknown API key 999",
    ),
    "a version above all": (request(HEARTBEAT, 4, b"").replace(b"\0\x0c\0\4", b"\0\x0c\0\x63", 1), "version 99"),
    "a version below zero": (request(HEARTBEAT, 4, b"").replace(b"\0\x0c\0\4", b"\0\x0c\xff\xff", 1), "version -1"),
    "a body cut short": (request(HEARTBEAT, 0, b"\0\x10ab"), "Error getting request for apiKey: Heartbeat"),
    "a client id beyond the frame": (struct.pack(">ihhih", 10, 12, 0, 1, 30_000), "Error getting request"),
    "a tag section beyond the frame": (request(HEARTBEAT, 4, b"")[:-1] + b"\x7f", "Error getting request"),
    "an array count beyond the frame": (request(LIST_GROUPS, 4, b"\xff\xff\xff\xff\x0f\0"), "Error getting request"),
    "a varint without end": (request(LIST_GROUPS, 4, b"\xff" * 50), "Error getting request"),
}


async def serves(node: TinyNode) -> bool:
    client = await node.client()
    client.send(heartbeat("m", 5))
    return await client.correlation_ids(1) == [5]


@pytest.mark.parametrize("name", CASES)
async def test_it_closes_that_connection_alone_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, said = CASES[name]
    route = Route(LIST_GROUPS, lambda request, context: ListGroupsResponse())
    async with tiny_node(route, limits=ConnectionLimits(request_bytes_max=1_000_000)) as node:
        bystander = await node.client()
        bystander.send(heartbeat("wait", 1))
        await until(lambda: node.heartbeats.waiting)
        with caplog.at_level(logging.WARNING):
            foreign_client = await node.client()
            foreign_client.send(data)
            assert await foreign_client.is_closed_by_peer()
        assert len(caplog.records) == 1
        assert said in caplog.records[0].getMessage()
        assert caplog.records[0].exc_info is None
        assert await serves(node)
        assert len(node.listener.connections) >= 1
        assert not node.heartbeats.cancelled


async def test_what_was_served_before_the_garbage_is_answered() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("m", 1) + heartbeat("m", 2) + struct.pack(">i", -1) + heartbeat("m", 3))
        assert await client.correlation_ids(2) == [1, 2]
        assert await client.is_closed_by_peer()
        assert node.heartbeats.members == ["m", "m"]


async def test_an_api_versions_version_of_the_future_is_answered_in_version_0() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(request(API_VERSIONS, 5, b"\2!\2!\0").replace(b"\0\x12\0\5", b"\0\x12\0\x63", 1))
        answer = await client.frame()
        assert answer == struct.pack(">ihihhh", 1, ErrorCode.UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, 5)
        client.send(heartbeat("m", 2))
        assert await client.correlation_ids(1) == [2]


async def test_an_api_that_only_kafka_serves_gets_an_error_and_not_a_hang() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(request(LIST_GROUPS, 4, ListGroupsRequest(), 8))
        assert (await client.frame())[:11] == struct.pack(">ixih", 8, 0, ErrorCode.UNSUPPORTED_VERSION)
        assert await serves(node)


async def test_an_api_that_only_kafka_serves_and_that_wants_no_answer_closes_the_connection() -> None:
    """The request is a Produce with acks=0, for example at a listener of controllers."""
    async with tiny_node() as node:
        client = await node.client()
        client.send(request(PRODUCE, 9, ProduceRequest(acks=0), 8))
        assert await client.is_closed_by_peer()
        assert node.listener.refused == 1
        assert await serves(node)


async def test_bytes_after_the_body_are_passed_over_as_kafka_does() -> None:
    async with tiny_node() as node:
        client = await node.client()
        body = b"\0\x01g" + struct.pack(">i", 0) + b"\0\x01m" + b"what is this"
        client.send(request(HEARTBEAT, 0, body, 4))
        assert await client.correlation_ids(1) == [4]


async def test_announced_sizes_cost_nothing_until_the_bytes_come() -> None:
    """A hundred clients announce 100 MiB each and send a few hundred bytes of it."""
    async with tiny_node() as node:
        clients = [await node.client() for _ in range(100)]
        for client in clients:
            client.send(struct.pack(">i", 104_857_600) + b"\0" * 300)
        await until(lambda: sum(c.received_bytes_kept > 0 for c in node.listener.connections) == 100)
        kept = sum(connection.received_bytes_kept for connection in node.listener.connections)
        assert kept < 100 * 300_000
        assert await serves(node)
        for client in clients:
            client.close()


async def test_a_client_of_one_byte_at_a_time_is_served_like_any_other() -> None:
    async with tiny_node() as node:
        slow = await node.client()
        for byte in heartbeat("m", 6):
            slow.send(bytes([byte]))
            await slow.writer.drain()
            await asyncio.sleep(0)
        assert await slow.correlation_ids(1) == [6]


async def test_a_handler_that_breaks_answers_unknown_server_error(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ListGroupsRequest, context: object) -> ListGroupsResponse:
        raise ZeroDivisionError("a bug")

    async with tiny_node(Route(LIST_GROUPS, broken)) as node:
        client = await node.client()
        client.send(request(LIST_GROUPS, 0, ListGroupsRequest(), 2))
        assert (await client.frame())[:6] == struct.pack(">ih", 2, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert "Unexpected error handling ListGroups v0" in caplog.text
        assert await serves(node)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.binary(max_size=80), max_size=5), junk=st.binary(max_size=40))
def test_whatever_bytes_come_the_node_goes_on(frames: list[bytes], junk: bytes) -> None:
    async def scenario() -> None:
        async with tiny_node() as node:
            client = await node.client()
            client.send(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames) + junk)
            client.writer.write_eof()
            await client.reader.read()
            assert await serves(node)

    asyncio.run(scenario())
