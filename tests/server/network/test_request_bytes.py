"""queued.max.request.bytes: large requests of all connections together take at most this, plus one request, and each is served
in its turn.
"""

from __future__ import annotations

import asyncio

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.server.network.context import RequestContext
from ottla.server.network.frames import LARGE_FRAME_BYTES
from ottla.server.network.network_metrics import memory_metrics
from ottla.server.network.pauses import RequestBytes
from ottla.server.network.route import Route
from tests.server.tiny_node import PRODUCE, heartbeat, request, tiny_node, until

MIB = 1024 * 1024


class Waiting:
    def __init__(self) -> None:
        self.called = 0

    def has_memory(self) -> None:
        self.called += 1


def test_the_request_that_reaches_the_limit_is_let_in_and_the_next_ones_are_called_in_their_order() -> None:
    memory, first, second, third = RequestBytes(100), Waiting(), Waiting(), Waiting()
    assert memory.take(first, 90) and memory.take(first, 90)
    assert not memory.take(second, 1) and not memory.take(third, 1)
    memory.give_back(90)
    assert (second.called, third.called, memory.waits) == (1, 0, 2)
    assert memory.take(second, 1)
    assert third.called == 1  # 91 of 100 bytes
    memory.give_back(91)
    assert memory.taken == 0


def test_a_connection_that_closes_leaves_its_turn_to_the_next_one() -> None:
    memory, first, second, third = RequestBytes(100), Waiting(), Waiting(), Waiting()
    assert memory.take(first, 100)
    assert not memory.take(second, 1) and not memory.take(third, 1)
    memory.give_back(100)
    memory.forget(second)
    assert (second.called, third.called) == (1, 1)


def test_without_a_limit_nothing_waits() -> None:
    memory = RequestBytes()
    assert memory.take(Waiting(), 2**40) and memory.take(Waiting(), 2**40)
    samples = {family.name.rpartition("_")[2]: family.samples[0].value for family in memory_metrics(memory)}
    assert samples == {"memorypoolused": 2**41, "memorypoolavailable": 2**63 - 1, "memorypoolwaits": 0}


def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
    return ProduceResponse(responses=[])


def large(correlation_id: int, size: int) -> bytes:
    """Return a Produce request of about this size."""
    data = [PartitionProduceData(index=0, records=bytes(size))]
    message = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    return request(PRODUCE, 9, message, correlation_id)


async def test_a_large_request_waits_unread_until_another_ones_memory_is_free() -> None:
    frame = large(1, MIB // 2)
    async with tiny_node(Route(PRODUCE, produce)) as node:
        memory = node.listener.inbox.requests
        memory.limit = 1
        first, second, small = [await node.client() for _ in range(3)]
        first.send(frame[:-1])
        await until(lambda: memory.taken == len(frame))
        second.send(frame)
        await until(lambda: memory.waits == 1)
        small.send(heartbeat("small", 3))
        assert await small.correlation_ids(1) == [3]
        assert memory.taken == len(frame)
        first.send(frame[-1:])
        assert await first.correlation_ids(1) == [1]
        assert await second.correlation_ids(1) == [1]
        await until(lambda: memory.taken == 0)


async def test_a_connection_that_stops_in_the_middle_of_a_large_request_gives_its_memory_back_when_it_closes() -> None:
    frame = large(1, MIB // 2)
    async with tiny_node(Route(PRODUCE, produce)) as node:
        memory = node.listener.inbox.requests
        memory.limit = 1
        first, second = [await node.client() for _ in range(2)]
        first.send(frame[: 2 * LARGE_FRAME_BYTES])
        await until(lambda: memory.taken == len(frame))
        second.send(frame)
        await until(lambda: memory.waits == 1)
        first.close()
        assert await second.correlation_ids(1) == [1]
        await until(lambda: memory.taken == 0)


async def test_what_a_hundred_connections_send_at_once_is_all_served() -> None:
    frame = large(5, 3 * LARGE_FRAME_BYTES)
    async with tiny_node(Route(PRODUCE, produce)) as node:
        memory = node.listener.inbox.requests
        memory.limit = 2 * len(frame)
        clients = [await node.client() for _ in range(100)]
        for client in clients:
            client.send(frame[: 2 * LARGE_FRAME_BYTES])
        await until(lambda: memory.waits)
        assert memory.taken < memory.limit + len(frame)
        for client in clients:
            client.send(frame[2 * LARGE_FRAME_BYTES :])
        assert await asyncio.gather(*(client.correlation_ids(1) for client in clients)) == [[5]] * 100
        assert memory.taken == 0
