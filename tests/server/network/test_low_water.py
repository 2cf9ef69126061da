"""The loop is woken for the rest of a frame when that has arrived (SO_RCVLOWAT), and never waits for more than will come."""

from __future__ import annotations

import asyncio
import random
import ssl
from itertools import pairwise

import pytest

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.server.network.context import RequestContext
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.route import Route
from ottla.server.transport import LOW_WATER_BYTES, LOW_WATER_BYTES_MAX, SocketOptions
from tests.server.network.test_tls_stream import Tls, client_context
from tests.server.tiny_node import PRODUCE, RawClient, TinyNode, heartbeat, request, tiny_node, until

TLS = pytest.mark.parametrize("tls", [None, Tls], ids=["plaintext", "TLS"])


#: The event loops that each test runs on.
LOOPS = ("uvloop",)


def produced(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
    return ProduceResponse()


def produce(size: int, number: int = 1) -> bytes:
    partition = PartitionProduceData(index=0, records=random.Random(size).randbytes(size))
    return request(
        PRODUCE, 9, ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]), number
    )


async def all_seen(other: RawClient) -> None:
    """The loop has checked every socket since then: it has answered another client twice."""
    for number in range(2):
        other.send(heartbeat("m", number))
        assert await other.correlation_ids(1) == [number]


async def connected(node: TinyNode, tls: type[Tls] | None) -> RawClient:
    return await node.client(None if tls is None else client_context())


@TLS
async def test_a_frame_that_comes_in_pieces_is_read_when_the_rest_is_there(tls: type[Tls] | None) -> None:
    async with tiny_node(Route(PRODUCE, produced), tls=tls) as node:
        client, other = await connected(node, tls), await connected(node, tls)
        await until(lambda: len(node.listener.connections) == 2)
        connection = next(iter(node.listener.connections))
        frame = produce(60_000)
        client.send(frame[:1_000])
        await until(lambda: connection.received_bytes_kept)
        for at in range(1_000, 51_000, 1_000):
            client.send(frame[at : at + 1_000])
            await all_seen(other)
        assert connection.received_bytes_kept == 1_000, "fifty pieces more, and no reason to read them yet"
        client.send(frame[51_000:] + heartbeat("m", 2))
        assert await client.correlation_ids(2) == [1, 2]
        client.send(heartbeat("m", 3))
        assert await client.correlation_ids(1) == [3]


@TLS
@pytest.mark.parametrize("record", [700, 16_384])
async def test_a_frame_is_answered_wherever_its_bytes_stop_for_a_while(tls: type[Tls] | None, record: int) -> None:
    """The bytes of a TLS record that OpenSSL already has count, too: waiting for as many again would last for ever."""
    chance = random.Random(record)
    async with tiny_node(Route(PRODUCE, produced), tls=tls) as node:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client, other = await node.client(), await connected(node, tls)
        end = None if tls is None else client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while end is not None:
            try:
                end.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.send(outgoing.read())
                incoming.write(await client.reader.read(2**16))
        for number in range(12):
            frame = produce(chance.choice((30_000, 65_000, 66_000, 300_000)), number)
            if end is not None:
                for at in range(0, len(frame), record):
                    end.write(frame[at : at + record])
                frame = outgoing.read()
            stops = sorted(chance.sample(range(1, len(frame)), 4))
            for begin, stop in pairwise([0, *stops, len(frame)]):
                client.send(frame[begin:stop])
                await all_seen(other)
            answer = bytearray()
            while number.to_bytes(4, "big") not in answer:
                async with asyncio.timeout(10):
                    data = await client.reader.read(2**16)
                if end is None:
                    answer += data
                    continue
                incoming.write(data)
                while incoming.pending:
                    try:
                        answer += end.read()
                    except ssl.SSLWantReadError:
                        break  # a session ticket


@TLS
async def test_a_frame_arrives_through_a_socket_buffer_that_is_smaller_than_it(tls: type[Tls] | None) -> None:
    options = SocketOptions(receive_buffer_bytes=16_384)
    async with tiny_node(Route(PRODUCE, produced), limits=ConnectionLimits(socket_options=options), tls=tls) as node:
        client = await connected(node, tls)
        for number in range(3):
            client.send(produce(300_000, number))
            assert await client.correlation_ids(1) == [number]


async def test_a_client_that_goes_in_the_middle_of_a_frame_is_forgotten() -> None:
    assert LOW_WATER_BYTES < 50_000 < LOW_WATER_BYTES_MAX
    async with tiny_node() as node:
        client = await node.client()
        client.send(produce(60_000)[:10_000])
        await until(lambda: any(each.received_bytes_kept for each in node.listener.connections))
        client.close()
        await until(lambda: not node.listener.connections)
