"""A Produce and the Fetches that wait for its records: which response leaves first."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ottla.protocol.api import ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, TopicProduceData
from ottla.server.network.connection import Connection
from tests.broker.produce.test_repeated import SETTINGS, Answers, Producer, replicas
from tests.broker.records import batch
from tests.fuzz.wire import deliver
from tests.sim.cluster import SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import run
from tests.sim.world import EPOCH_MS


class Writes(Answers):
    """Notes the order of the writes to all connections."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self._name, self._order = name, order

    def write(self, data: Any) -> None:
        super().write(data)
        self._order.append(self._name)


def open_connection(node: SimNode, name: str, order: list[str]) -> tuple[Connection, Writes]:
    assert node.server is not None
    listener = next(each for each in node.server.listeners if each.name != "CONTROLLER")
    client, writes = Connection(listener, listener._dispatcher, 0), Writes(name, order)
    client.connection_made(writes)
    return client, writes


async def one_broker() -> SimClusterHarness:
    harness = SimClusterHarness({1: "broker,controller"}, SETTINGS | {"default.replication.factor": "1"})
    harness.cluster.start()
    assert await harness.cluster.all_serve(20)
    assert await harness.admin.spawn(harness.admin.create(TOPIC, 1, {}, 1), "creates")
    await harness.until("it is there", lambda: len(replicas(harness)) == 1)
    return harness


def fetch(offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    frame = encode_request_header(ApiKey.FETCH, 11, 1, "reader") + encode(request, 11)
    return len(frame).to_bytes(4, "big") + frame


def test_a_waiting_fetch_is_answered_before_the_first_produce_of_a_turn_and_after_the_others() -> None:
    async def main() -> None:
        harness = await one_broker()
        leader = harness.leader()
        order: list[str] = []
        producing = Producer(random.Random(1), {})
        row = PartitionProduceData(index=0, records=batch([b"x"], timestamp=EPOCH_MS))
        topics = [TopicProduceData(name=TOPIC, partition_data=[row])]

        def send(client: Connection, frame: bytes) -> None:
            leader.host.lane.context.run(deliver, client, frame, 1 << 20)

        first, first_writes = open_connection(leader, "first", order)
        second, second_writes = open_connection(leader, "second", order)
        reader, reader_writes = open_connection(leader, "fetch", order)
        send(first, producing.framed(topics))  # the handler serves this request, and makes the fast path
        send(second, producing.framed(topics))
        await asyncio.wait_for(first_writes.has_written.wait(), 1)
        await asyncio.wait_for(second_writes.has_written.wait(), 1)
        send(reader, fetch(2))
        order.clear()
        reader_writes.has_written.clear()
        first_writes.has_written.clear()

        first_id = producing.correlation_id + 1
        send(first, producing.framed(topics) + producing.framed(topics))
        send(second, producing.framed(topics))
        await asyncio.wait_for(reader_writes.has_written.wait(), 1)
        await asyncio.wait_for(first_writes.has_written.wait(), 1)
        assert order == ["second", "fetch", "first"]
        both = bytes(first_writes.sent[-1])
        size = int.from_bytes(both[:4], "big") + 4
        found = [int.from_bytes(both[at + 4 : at + 8], "big") for at in (0, size)]
        assert found == [first_id, first_id + 1], "a connection's responses keep their order"

    run(main())


def test_a_producer_that_leaves_before_the_fetch_is_answered_gets_nothing_and_the_fetch_its_records() -> None:
    async def main() -> None:
        harness = await one_broker()
        leader = harness.leader()
        order: list[str] = []
        producing = Producer(random.Random(1), {})
        row = PartitionProduceData(index=0, records=batch([b"x"], timestamp=EPOCH_MS))
        topics = [TopicProduceData(name=TOPIC, partition_data=[row])]
        producer, acknowledged = open_connection(leader, "produce", order)
        reader, writes = open_connection(leader, "fetch", order)
        leader.host.lane.context.run(deliver, producer, producing.framed(topics), 1 << 20)
        await asyncio.wait_for(acknowledged.has_written.wait(), 1)
        leader.host.lane.context.run(deliver, reader, fetch(1), 1 << 20)
        order.clear()
        leader.host.lane.context.run(deliver, producer, producing.framed(topics), 1 << 20)
        producer.connection_lost(None)
        await asyncio.wait_for(writes.has_written.wait(), 1)
        assert order == ["fetch"]

    run(main())


def test_an_acknowledgement_with_acks_1_does_not_wait_for_fetches() -> None:
    async def main() -> None:
        harness = await one_broker()
        leader = harness.leader()
        order: list[str] = []
        producing = Producer(random.Random(1), {}, acks=1)
        row = PartitionProduceData(index=0, records=batch([b"x"], timestamp=EPOCH_MS))
        topics = [TopicProduceData(name=TOPIC, partition_data=[row])]
        producer, acknowledged = open_connection(leader, "produce", order)
        reader, writes = open_connection(leader, "fetch", order)
        leader.host.lane.context.run(deliver, producer, producing.framed(topics), 1 << 20)
        await asyncio.wait_for(acknowledged.has_written.wait(), 1)
        leader.host.lane.context.run(deliver, reader, fetch(1), 1 << 20)
        order.clear()
        writes.has_written.clear()
        leader.host.lane.context.run(deliver, producer, producing.framed(topics), 1 << 20)
        await asyncio.wait_for(writes.has_written.wait(), 1)
        assert order == ["produce", "fetch"]

    run(main())
