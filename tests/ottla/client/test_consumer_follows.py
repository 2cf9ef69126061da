"""A consumer continues when its leader is lost or cut off, or its offset was deleted. The test plays the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.consumer import LEADERS_AGE_MS_MAX, Consumer, _Fetch
from ottla.client.errors import ClusterError
from ottla.client.fetched import At, Recreated
from ottla.client.topics import EARLIEST
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.records.builder import build_batch
from tests.manual_clock import ManualClock

NOW = 1_700_000_000_000
PLACE = ("t", 0)
POLLS_MAX = 200


class Brokers:
    """Two brokers and a topic of one partition, whose log begins at `start`.

    `cut` is a broker that still names itself as the leader.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = SimpleNamespace(clock=self.clock, spawn=lambda coroutine, name: asyncio.ensure_future(coroutine))
        self.brokers = {1: ("a", 1), 2: ("b", 1)}
        self.timeout_ms = 30_000
        self.doing = ""
        self.leader, self.epoch, self.start = 1, 0, 0
        self.topic_id = b"t" * 16
        #: The topic id in the next metadata, which comes from a broker that lags.
        self.late_ids: list[bytes] = []
        self.cut: int | None = None
        self.lost: set[int] = set()
        self.none_answers = False
        self.log: list[bytes] = []
        self.asked: list[int] = []

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        return (await self.metadata([name])).topics[0]

    async def metadata(self, topics: Any, node: int | None = None) -> MetadataResponse:
        if node in self.lost or self.none_answers:
            raise NoConnection("connection lost", "")
        leader, epoch = (node, 0) if node is not None and node == self.cut else (self.leader, self.epoch)
        part = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        topic_id = self.late_ids.pop() if self.late_ids else self.topic_id
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[part])])

    async def retry(self, ask: Callable[[], Any]) -> Any:
        return await ask()

    async def request(self, request: object, node: int | None = None, timeout_ms: int | None = None) -> object:
        if isinstance(request, ListOffsetsRequest):
            row = ListOffsetsPartitionResponse(partition_index=0, offset=self.start)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])
        assert isinstance(request, FetchRequest) and node is not None
        self.asked.append(node)
        await asyncio.sleep(0.005)
        if node in self.lost:
            raise NoConnection("connection lost", "")
        offset = request.topics[0].partitions[0].fetch_offset
        part = PartitionData(partition_index=0, high_watermark=len(self.log))
        if request.topics[0].topic_id != self.topic_id:
            part.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif node == self.cut:
            pass  # there are no new records
        elif node != self.leader:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif offset < self.start:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif rows := self.log[offset:]:
            part.records = build_batch([(None, value, NOW) for value in rows], base_offset=offset)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[part])])


async def read(consumer: Consumer, brokers: Brokers, count: int) -> list[bytes | None]:
    """Poll until `count` records have come; each poll takes 100 ms of the clock."""
    values: list[bytes | None] = []
    for _ in range(POLLS_MAX):
        values += [record.value for consumed in await consumer.poll() for record in consumed.records]
        if len(values) >= count:
            return values
        brokers.clock.advance(100)
    raise AssertionError(f"only {values} came; asked were {brokers.asked[-10:]}")


def following(brokers: Brokers, reset: int | None = None) -> Consumer:
    return Consumer(cast(ClusterClient, brokers), {PLACE: 0}, reset=reset)


async def test_a_lost_leader_is_replaced_by_the_one_that_the_others_name() -> None:
    brokers = Brokers()
    consumer = following(brokers)
    brokers.log.append(b"1")
    assert await read(consumer, brokers, 1) == [b"1"]
    brokers.lost, brokers.leader, brokers.epoch = {1}, 2, 1
    brokers.log.append(b"2")
    assert await read(consumer, brokers, 1) == [b"2"]


async def test_a_leader_that_is_cut_off_and_answers_without_news_is_left_after_seconds() -> None:
    brokers = Brokers()
    consumer = following(brokers)
    brokers.log.append(b"1")
    assert await read(consumer, brokers, 1) == [b"1"]
    brokers.cut, brokers.leader, brokers.epoch = 1, 2, 1
    brokers.log.append(b"2")
    began_ms = brokers.clock.mono_ms()
    assert await read(consumer, brokers, 1) == [b"2"]
    assert brokers.clock.mono_ms() - began_ms <= 3 * LEADERS_AGE_MS_MAX


async def test_an_offset_that_was_deleted_is_reset_or_ends_the_read() -> None:
    brokers = Brokers()
    brokers.log, brokers.start = [b"0", b"1", b"2"], 2
    assert await read(following(brokers, EARLIEST), brokers, 1) == [b"2"]
    with pytest.raises(ClusterError, match="OFFSET_OUT_OF_RANGE"):
        await read(following(brokers), brokers, 1)


async def test_a_cluster_that_is_away_for_longer_than_the_time_limit_ends_the_read() -> None:
    brokers = Brokers()
    consumer = following(brokers)
    brokers.log.append(b"1")
    assert await read(consumer, brokers, 1) == [b"1"]
    brokers.lost, brokers.none_answers, brokers.timeout_ms = {1, 2}, True, 500
    with pytest.raises(NoConnection):
        await read(consumer, brokers, 1)


async def test_a_topic_that_was_created_again_and_is_longer_is_read_from_its_beginning_and_is_listed() -> None:
    brokers = Brokers()
    consumer = following(brokers)
    brokers.log += [b"old 1", b"old 2", b"old 3"]
    assert await read(consumer, brokers, 3) == [b"old 1", b"old 2", b"old 3"]
    consumer.seek(PLACE, 2)
    brokers.topic_id, brokers.log = b"u" * 16, [b"%d" % i for i in range(9)]
    assert await read(consumer, brokers, 9) == brokers.log
    assert consumer.recreated == [Recreated("t", 0, 2, 1, 0)]


async def test_a_broker_that_lags_and_names_the_deleted_topic_takes_the_reader_nowhere() -> None:
    brokers = Brokers()
    consumer = following(brokers)
    brokers.log.append(b"old")
    assert await read(consumer, brokers, 1) == [b"old"]
    brokers.topic_id, brokers.log = b"u" * 16, [b"new 1"]
    assert await read(consumer, brokers, 1) == [b"new 1"]
    brokers.late_ids = [b"t" * 16] * 5
    brokers.clock.advance(LEADERS_AGE_MS_MAX)
    await consumer.poll()
    brokers.log.append(b"new 2")
    assert await read(consumer, brokers, 1) == [b"new 2"]
    assert len(consumer.recreated) == 1


async def test_a_read_to_an_end_is_not_continued_in_another_topic_of_the_name() -> None:
    brokers = Brokers()
    brokers.log += [b"1", b"2"]
    consumer = Consumer(cast(ClusterClient, brokers), {PLACE: 0}, {PLACE: 9})
    assert await read(consumer, brokers, 2) == [b"1", b"2"]
    brokers.topic_id, brokers.log = b"u" * 16, [b"%d" % i for i in range(9)]
    with pytest.raises(ClusterError, match="deleted and created again while it was read"):
        await read(consumer, brokers, 1)


async def test_rows_beside_a_partition_that_cannot_be_read_come_before_its_failure_is_raised() -> None:
    consumer = Consumer(cast(ClusterClient, Brokers()), {PLACE: 0, ("u", 0): 0})
    rows = PartitionData(partition_index=0, records=build_batch([(None, b"1", NOW)]))
    refused = PartitionData(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    unknown = FetchableTopicResponse(topic_id=b"x" * 16, partitions=[rows])
    parts = [unknown, FetchableTopicResponse("u", partitions=[refused]), FetchableTopicResponse("t", partitions=[rows])]
    answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    answer.set_result(FetchResponse(responses=parts))
    at = At(b"t" * 16, 0)
    consumer._ids = dict.fromkeys(consumer.positions, at.topic_id)
    consumer._in_flight[1] = _Fetch(dict.fromkeys(consumer.positions, at), cast(Any, answer))
    assert [row[:3] for row in consumer._received(1)] == [("t", 0, 0)]
    with pytest.raises(ClusterError, match="TOPIC_AUTHORIZATION_FAILED"):
        await consumer.poll()
