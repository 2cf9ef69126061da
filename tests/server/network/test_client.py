"""Channels: pipelined requests to a peer, and what happens when the peer is slow, gone, or no broker at all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.server.network.client import Channel
from ottla.server.network.route import Route
from ottla.server.network.wire import RESPONSE_BYTES_MAX, ChannelClosed, RequestTimeout
from ottla.server.world import RealWorld
from tests.server.tiny_node import FETCH, LIST_GROUPS, tiny_node, until


@pytest.fixture
async def real() -> AsyncIterator[RealWorld]:
    world = RealWorld(asyncio.get_running_loop())
    yield world
    await world.close()


def ask(member_id: str = "m", generation_id: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation_id)


async def test_many_requests_at_once_share_one_connection(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port, "tester")
        answers = await asyncio.gather(*(channel.request(ask("m", number)) for number in range(50)))
        assert [answer.error_code for answer in answers] == list(range(50))
        assert node.listener.accepted == 1
        assert next(iter(node.listener.connections)).client_software_name == "ottla-node"
        assert channel.is_open
        channel.close()


async def test_a_request_that_its_version_cannot_hold_leaves_the_channel_as_it_was(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        static = HeartbeatRequest(group_id="g", member_id="m", group_instance_id="of version 3")
        with pytest.raises(UnsupportedVersion):
            await channel.request(static, version=0)
        assert (await channel.request(ask("m", 7))).error_code == 7
        assert node.listener.accepted == 1
        channel.close()


async def test_answers_own_their_records(real: RealWorld) -> None:
    def fetch(request: FetchRequest, context: Any) -> FetchResponse:
        records = bytes([request.max_wait_ms]) * (request.max_bytes)
        partition = PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    async with tiny_node(Route(FETCH, fetch)) as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        sizes = [10, 5000, 70_000, 300_000, 2_000_000]
        answers = await asyncio.gather(
            *(
                channel.request(FetchRequest(max_wait_ms=number, max_bytes=size), version=12)
                for number, size in enumerate(sizes)
            )
        )
        for number, (answer, size) in enumerate(zip(answers, sizes, strict=True)):
            assert bytes(answer.responses[0].partitions[0].records) == bytes([number]) * size
        channel.close()


async def test_a_lost_connection_fails_what_is_in_flight_and_the_next_request_connects_again(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        waiting = [asyncio.ensure_future(channel.request(ask(f"wait-{number}"))) for number in range(3)]
        await until(lambda: len(node.heartbeats.waiting) == 3)
        node.listener.abort()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, ChannelClosed)
            assert not isinstance(outcome, RequestTimeout)
        assert not channel.is_open
        assert (await channel.request(ask("m", 7))).error_code == 7
        channel.close()


async def test_an_answer_that_does_not_come_is_a_timeout(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        await channel.request(ask())  # the 30 ms are not for connecting, which takes longer on a busy machine
        with pytest.raises(RequestTimeout, match="did not answer Heartbeat within 30 ms"):
            await channel.request(ask("wait"), timeout_ms=30)
        await until(lambda: node.heartbeats.cancelled)
        channel.close()


async def test_a_peer_that_takes_no_connection_costs_the_time_of_the_request_and_not_more(real: RealWorld) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    channel = Channel(real.world, "127.0.0.1", server.sockets[0].getsockname()[1])
    async with asyncio.timeout(9):  # an attempt to connect ends after 10 s
        with pytest.raises(RequestTimeout, match="did not take a connection within 30 ms"):
            await channel.request(ask(), timeout_ms=30)
    channel.close()
    server.close()


async def test_a_refused_connection_is_reported_with_the_address(real: RealWorld) -> None:
    with socket.socket() as bound:  # it does not listen, and no other socket gets its port
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        channel = Channel(real.world, "127.0.0.1", port)
        with pytest.raises(ChannelClosed, match=rf"cannot connect to .*:{port}"):
            await channel.request(ask())


async def test_a_peer_that_speaks_another_protocol_is_recognised(real: RealWorld) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    assert int.from_bytes(b"HTTP", "big") > RESPONSE_BYTES_MAX

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    channel = Channel(real.world, "127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(ChannelClosed, match="answered with HTTP, so it is no Kafka listener"):
        await channel.request(ask())
    server.close()


async def test_an_api_the_peer_does_not_serve_is_refused_before_it_is_sent(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        with pytest.raises(KafkaError) as refusal:
            await channel.request(ListGroupsRequest())
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            await channel.request(ask(), version=99)
        channel.close()


async def test_closing_fails_what_is_in_flight_and_refuses_what_follows(real: RealWorld) -> None:
    async with tiny_node() as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        waiting = asyncio.ensure_future(channel.request(ask("wait")))
        await until(lambda: node.heartbeats.waiting)
        channel.close()
        with pytest.raises(ChannelClosed):
            await waiting
        with pytest.raises(ChannelClosed):
            await channel.request(ask())


async def test_a_caller_that_gives_up_disturbs_no_other_caller(real: RealWorld) -> None:
    async with tiny_node(Route(LIST_GROUPS, lambda request, context: None)) as node:
        channel = Channel(real.world, "127.0.0.1", node.port)
        impatient = asyncio.ensure_future(channel.request(ask("wait")))
        await until(lambda: node.heartbeats.waiting)
        patient = asyncio.ensure_future(channel.request(ask("m", 3)))
        impatient.cancel()
        node.heartbeats.waiting["wait"].complete(HeartbeatResponse())
        assert (await patient).error_code == 3
        channel.close()
