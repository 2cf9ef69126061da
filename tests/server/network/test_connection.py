"""Order of replies, pipelining, back-pressure and memory of connections, over real sockets (invariant 51)."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from typing import Any

import psutil
import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.server.network import dispatch
from ottla.server.network.connection import Connection
from ottla.server.network.context import CONTEXTS_MAX, Reply, RequestContext
from ottla.server.network.limits import OTHER_REQUEST_BYTES_MAX, ConnectionLimits
from ottla.server.network.pauses import HELD_BYTES_MAX, HELD_REPLIES_MAX
from ottla.server.network.route import Route
from ottla.server.transport import PIECES_MAX
from tests.server.tiny_node import FETCH, LIST_GROUPS, PRODUCE, RawClient, heartbeat, request, tiny_node, until

FETCH_RECORDS = b"r" * 200_000


#: The event loops that each test runs on.
LOOPS = ("asyncio", "uvloop")


def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    partition = PartitionData(partition_index=0, records=memoryview(FETCH_RECORDS))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


async def test_pipelined_requests_are_answered_in_order_and_served_together() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(b"".join(heartbeat(f"m{number}", number) for number in range(500)))
        assert await client.correlation_ids(500) == list(range(500))
        assert node.heartbeats.members == [f"m{number}" for number in range(500)]


#: uvloop's limit, and one more.
BUFFERS_MAX = (1 << 20) + 1


async def test_an_answer_of_more_pieces_than_the_transport_takes_arrives_whole() -> None:
    """uvloop's writelines fails with EINVAL above 2^20 buffers: DescribeConfigs of 2,500 topics ended in a closed connection."""
    name = b"x" * 200

    def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[])

    async with tiny_node(Route(LIST_GROUPS, list_groups)) as node:
        client = await node.client()
        client.send(heartbeat("first", 1))
        await client.frame()
        (connection,) = node.listener.connections
        assert PIECES_MAX < BUFFERS_MAX
        parts = [name] * BUFFERS_MAX
        nbytes = 200 * len(parts)
        connection.reply((nbytes + 4).to_bytes(4, "big") + (7).to_bytes(4, "big"), parts, nbytes + 8)
        connection.flush()
        assert len(await client.frame()) == nbytes + 4


async def test_a_waiting_reply_holds_back_replies_but_not_requests() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("wait-1", 1) + heartbeat("m", 2) + heartbeat("wait-2", 3) + heartbeat("m", 4))
        await until(lambda: len(node.heartbeats.members) == 4)
        node.heartbeats.waiting["wait-2"].complete(HeartbeatResponse())
        client.send(heartbeat("m", 5))
        await until(lambda: len(node.heartbeats.members) == 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.05)
        node.heartbeats.waiting["wait-1"].complete(HeartbeatResponse())
        assert await client.correlation_ids(5) == [1, 2, 3, 4, 5]


async def test_a_deferred_answer_that_fails_becomes_the_error_of_its_api() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("wait", 7, version=0))
        await until(lambda: node.heartbeats.waiting)
        node.heartbeats.waiting["wait"].complete(KafkaError(ErrorCode.NOT_COORDINATOR))
        assert await client.frame() == (7).to_bytes(4, "big") + ErrorCode.NOT_COORDINATOR.to_bytes(2, "big")


async def test_an_answer_that_was_ready_before_it_was_returned_is_sent_at_once() -> None:
    def answer(request: Any, context: RequestContext) -> Reply:
        reply = Reply()
        reply.complete(ListGroupsResponse(error_code=9))
        return reply

    async with tiny_node(Route(LIST_GROUPS, answer)) as node:
        client = await node.client()
        client.send(request(LIST_GROUPS, 0, ListGroupsRequest(), 3))
        assert (await client.frame())[:6] == (3).to_bytes(4, "big") + (9).to_bytes(2, "big")


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_a_response_that_cannot_be_encoded_ends_its_connection_alone(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error code is larger than two bytes. An error response would need the same encoder, and the client would wait for it."""
    wrong = ListGroupsResponse(error_code=1 << 20, groups=[ListedGroup(group_id="planted")])
    reply: Reply[ListGroupsResponse] = Reply()

    async with tiny_node(Route(LIST_GROUPS, lambda request, context: wrong if when == "at once" else reply)) as node:
        client, other = await node.client(), await node.client()
        client.send(request(LIST_GROUPS, 4, ListGroupsRequest(), 1) + heartbeat("m", 2))
        if when == "later":
            await until(lambda: node.heartbeats.members)
            reply.complete(wrong)
        assert await client.is_closed_by_peer()
        other.send(heartbeat("m", 3))
        assert await other.correlation_ids(1) == [3]
        assert len(node.listener.connections) == 1
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.getMessage() == "A ListGroupsResponse cannot be encoded in v4" and line.exc_info is not None
    assert "planted" not in caplog.text, "responses may have secrets"


async def test_waiting_answers_are_cancelled_when_the_client_goes() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("wait-1", 1) + heartbeat("wait-2", 2))
        await until(lambda: len(node.heartbeats.waiting) == 2)
        node.heartbeats.waiting["wait-2"].complete(HeartbeatResponse())
        client.close()
        await until(lambda: node.heartbeats.cancelled)
        assert node.heartbeats.cancelled == ["wait-1"]
        node.heartbeats.waiting["wait-1"].complete(HeartbeatResponse())  # too late, and without effect
        assert not node.listener.connections


async def test_cleaning_up_goes_on_when_one_part_of_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    def break_down() -> None:
        raise ZeroDivisionError("a bug")

    gone: list[str] = []
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("wait-1", 1) + heartbeat("wait-2", 2))
        await until(lambda: len(node.heartbeats.waiting) == 2)
        node.heartbeats.waiting["wait-1"].on_cancel = break_down
        connection = next(iter(node.listener.connections))
        connection.on_close(break_down)
        connection.on_close(lambda: gone.append("gone"))
        client.close()
        await until(lambda: gone and node.heartbeats.cancelled)
        assert node.limits.open_total == 0
    assert caplog.text.count("A callback failed") == 2


async def test_a_closing_connection_does_not_wait_for_ever_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.network.listener.LINGER_MS", 50)
    async with tiny_node(Route(FETCH, fetch)) as node:
        client = await node.client()
        client.writer.transport.pause_reading()
        connection_of = node.listener.connections
        client.send(request(FETCH, 4, FetchRequest(), 1) * 30)
        await until(lambda: connection_of and next(iter(connection_of)).transport.get_write_buffer_size() > 0)
        connection = next(iter(connection_of))
        connection.close("the test says so")
        await until(lambda: not connection_of)
        client.close()


async def test_an_async_handler_holds_its_connection_and_no_other() -> None:
    gate = asyncio.Event()
    served: list[str] = []

    async def slow(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        served.append("slow begins")
        await gate.wait()
        served.append("slow ends")
        return ListGroupsResponse()

    async with tiny_node(Route(LIST_GROUPS, slow)) as node:
        client, other = await node.client(), await node.client()
        client.send(request(LIST_GROUPS, 0, ListGroupsRequest(), 1) + heartbeat("after", 2) + heartbeat("after", 3))
        await until(lambda: served)
        other.send(heartbeat("other", 1))
        assert await other.correlation_ids(1) == [1]
        assert node.heartbeats.members == ["other"]
        gate.set()
        assert await client.correlation_ids(3) == [1, 2, 3]
        client.send(heartbeat("later", 4))
        assert await client.correlation_ids(1) == [4]
        assert served == ["slow begins", "slow ends"]


async def test_a_request_without_reply_leaves_no_gap() -> None:
    taken: list[int] = []

    def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        taken.append(len(records))
        return None if request.acks == 0 else ProduceResponse()

    def message(acks: int) -> ProduceRequest:
        partition = PartitionProduceData(index=0, records=b"x" * 1000)
        return ProduceRequest(
            acks=acks, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
        )

    async with tiny_node(Route(PRODUCE, produce)) as node:
        client = await node.client()
        client.send(b"".join(request(PRODUCE, 9, message(acks), number) for number, acks in enumerate((1, 0, 0, 1))))
        assert await client.correlation_ids(2) == [0, 3]
        assert taken == [1000] * 4


@pytest.mark.parametrize("size", [10, 300])
async def test_frames_may_be_split_at_every_byte(size: int) -> None:
    frames = heartbeat("a" * size, 1) + heartbeat("b", 2)
    async with tiny_node() as node:
        client = await node.client()
        for split in range(1, len(frames), 7 if size > 100 else 1):
            client.send(frames[:split])
            await client.writer.drain()
            await asyncio.sleep(0)
            client.send(frames[split:])
            assert await client.correlation_ids(2) == [1, 2]


async def test_a_large_request_without_records_ends_its_connection_before_it_is_there() -> None:
    async with tiny_node() as node:
        client = await node.client()
        client.send((OTHER_REQUEST_BYTES_MAX + 1).to_bytes(4, "big") + heartbeat()[4:])
        assert await client.reader.read() == b""


@pytest.mark.parametrize("size", [65_000, 70_000, 300_000, 1_048_570, 3_000_000])
async def test_large_frames_arrive_whole_in_pieces_of_any_size(size: int) -> None:
    seen: list[bytes] = []

    def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        seen.append(bytes(records))
        return ProduceResponse()

    records = bytes(range(256)) * (size // 256)
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    frame = request(PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1, topic_data=data), 1)
    async with tiny_node(Route(PRODUCE, produce)) as node:
        client = await node.client()
        for piece in (100, 60_000, 131_071, len(frame)):
            for start in range(0, len(frame), piece):
                client.send(frame[start : start + piece])
                if piece > 1000:
                    await client.writer.drain()
            client.send(heartbeat("m", 2))
            assert await client.correlation_ids(2) == [1, 2]
        assert seen == [records] * 4


async def test_a_client_that_never_reads_costs_a_fixed_amount() -> None:
    """It requests 2,000 responses of 200 KB; what is kept for it stays within a few of them."""
    served = 0

    def counted(request: FetchRequest, context: RequestContext) -> FetchResponse:
        nonlocal served
        served += 1
        # Each has its own bytes, because a test is about keeping these.
        partition = PartitionData(partition_index=0, records=memoryview(bytes(FETCH_RECORDS)))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    async with tiny_node(Route(FETCH, counted)) as node:
        client = await node.client()
        client.writer.transport.pause_reading()
        client.send(request(FETCH, 4, FetchRequest(), 1) * 2000)
        await until(lambda: node.listener.unread)
        before = -1
        while served != before:
            before = served
            await asyncio.sleep(0.1)
        connection = next(iter(node.listener.connections))
        assert 0 < served < 100
        assert connection.transport.get_write_buffer_size() < 3_000_000
        assert node.listener.unread > 0
        client.writer.transport.resume_reading()
        assert await client.correlation_ids(2000) == [1] * 2000


async def test_too_many_held_replies_pause_reading_until_their_turn_comes() -> None:
    count = HELD_REPLIES_MAX * 3
    async with tiny_node() as node:
        client = await node.client()
        client.send(heartbeat("wait", 0) + b"".join(heartbeat("m", number) for number in range(1, count)))
        await until(lambda: len(node.heartbeats.members) > HELD_REPLIES_MAX)
        await asyncio.sleep(0.05)
        assert len(node.heartbeats.members) <= HELD_REPLIES_MAX + 2
        assert node.listener.held_up == 1
        node.heartbeats.waiting["wait"].complete(HeartbeatResponse())
        assert await client.correlation_ids(count) == list(range(count))


async def test_what_waiting_handlers_keep_of_their_requests_pauses_reading() -> None:
    """A transactional Produce that waits for its coordinator: 1,000 of them on a connection would be 1 GB and more."""
    waiting: list[Reply] = []
    count = 8

    def keep(asked: FetchRequest, context: RequestContext) -> Reply:
        waiting.append(Reply(kept_bytes=HELD_BYTES_MAX + 1))
        return waiting[-1]

    async with tiny_node(Route(FETCH, keep)) as node:
        client = await node.client()
        client.send(b"".join(request(FETCH, 4, FetchRequest(), number) for number in range(count)))
        for served in range(1, count + 1):
            await until(lambda served=served: len(waiting) >= served)
            assert len(waiting) == served
            waiting[-1].complete(FetchResponse())
        assert await client.correlation_ids(count) == list(range(count))


async def test_many_slow_requests_that_came_in_one_read_do_not_keep_others_waiting() -> None:
    served: list[str | None] = []

    def slow(asked: FetchRequest, context: RequestContext) -> FetchResponse:
        if not served:
            other.send(request(FETCH, 4, FetchRequest(), 7, "other"))
        served.append(context.client_id)
        time.sleep(0.002)
        return FetchResponse()

    async with tiny_node(Route(FETCH, slow)) as node:
        busy, other = await node.client(), await node.client()
        busy.send(b"".join(request(FETCH, 4, FetchRequest(), number, "busy") for number in range(100)))
        assert await other.correlation_ids(1) == [7]
        assert await busy.correlation_ids(100) == list(range(100))
    assert served.index("other") < 50 and len(served) == 101


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async with tiny_node(limits=ConnectionLimits(idle_ms_max=60)) as node:
        sock = socket.create_connection(("127.0.0.1", node.port))
        sock.sendall(heartbeat("wait", 1))  # it is there before the connection is accepted, and cannot be late
        waiting = RawClient(*await asyncio.open_connection(sock=sock))
        idle = await node.client()
        assert await idle.is_closed_by_peer()
        assert len(node.listener.connections) == 1
        node.heartbeats.waiting["wait"].complete(HeartbeatResponse())
        assert await waiting.correlation_ids(1) == [1]
        assert await waiting.is_closed_by_peer()


async def test_a_thousand_idle_connections_cost_little() -> None:
    async with tiny_node() as node:
        clients = [await node.client() for _ in range(10)]
        gc.collect()
        before = psutil.Process().memory_info().rss
        sockets = []
        for _ in range(1000):
            sock = socket.create_connection(("127.0.0.1", node.port))
            sockets.append(sock)
            if len(sockets) % 25 == 0:
                await until(lambda: len(node.listener.connections) >= len(sockets))
        await until(lambda: len(node.listener.connections) == 1010)
        grown = psutil.Process().memory_info().rss - before
        for sock in sockets:
            sock.close()
        # 10,000 connections must fit into 400 MiB; these need a tenth of that per connection.
        assert grown < 1000 * 10_000, grown
        assert all(isinstance(connection, Connection) for connection in node.listener.connections)
        for client in clients:
            client.close()


async def test_a_connection_keeps_a_bounded_number_of_contexts_and_answers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "CONTEXTS_MAX", CONTEXTS_MAX // 32)
    async with tiny_node() as node:
        client = await node.client()
        for number in range(40):
            client.send(heartbeat("m", number, version=number % 5))
        assert await client.correlation_ids(40) == [*range(40)]
        (connection,) = node.listener.connections
        assert 0 < len(connection.contexts) <= dispatch.CONTEXTS_MAX < 5
        client.close()
