"""A producer continues when its leader is lost, moves, or rejects a batch. The test plays the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.errors import ClusterError
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.protocol.records.record import NewRecord
from tests.manual_clock import ManualClock

NOW = 1_700_000_000_000
LOST = NoConnection("connection lost", "")
Answer = ErrorCode | NoConnection


class Brokers:
    """Two brokers and a topic of one partition. Each Produce gets the next of `answers`, then NONE."""

    def __init__(self, *answers: Answer) -> None:
        self.world = SimpleNamespace(clock=ManualClock())
        self.brokers = {1: ("a", 1), 2: ("b", 1)}
        self.timeout_ms = 30_000
        self.doing = ""
        self.answers = list(answers)
        self.views: dict[int | None, tuple[int, int]] = {}
        self.received: list[tuple[int, BatchView]] = []
        self.topic_id = b"t" * 16

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        return (await self.metadata([name])).topics[0]

    async def metadata(self, topics: Any, node: int | None = None) -> MetadataResponse:
        """Return the leader that a broker names, and its epoch: 1 in epoch 0, unless the test has set another one."""
        leader, epoch = self.views.get(node, (1, 0))
        part = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=[part])])

    async def retry(self, ask: Callable[[], Any]) -> Any:
        return await ask()

    async def request(self, request: object, node: int | None = None, timeout_ms: int | None = None) -> object:
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=77, producer_epoch=0)
        if isinstance(request, DescribeLogDirsRequest):
            return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", usable_bytes=4_096)])
        assert isinstance(request, ProduceRequest) and node is not None
        (batch,) = iter_batches(cast(bytes, request.topic_data[0].partition_data[0].records))
        self.received.append((node, batch))
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, NoConnection):
            raise answer
        part = PartitionProduceResponse(index=0, error_code=answer)
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[part])])


async def started(brokers: Brokers, notify: Callable[[str], object] | None = None) -> ClusterProducer:
    producer = ClusterProducer(cast(ClusterClient, brokers), "t", notify=notify)
    await producer.start()
    return producer


async def send(producer: ClusterProducer, *values: bytes) -> None:
    for value in values:
        await producer.send(NewRecord(None, value, NOW))
    await producer.flush()


def sequences(brokers: Brokers) -> list[tuple[int, int, int]]:
    """Node, base sequence and number of records of each Produce."""
    return [(node, batch.base_sequence, batch.count) for node, batch in brokers.received]


@pytest.mark.parametrize("lost", [LOST, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
async def test_a_batch_is_sent_again_to_the_next_leader_with_the_same_sequence_numbers(lost: Answer) -> None:
    brokers = Brokers(ErrorCode.NONE, lost)
    producer = await started(brokers)
    await send(producer, b"1", b"2")
    brokers.views = {2: (2, 1), None: (2, 1)}
    await send(producer, b"3")
    await send(producer, b"4")
    assert sequences(brokers) == [(1, 0, 2), (1, 2, 1), (2, 2, 1), (2, 3, 1)]
    assert {(batch.producer_id, batch.producer_epoch) for _, batch in brokers.received} == {(77, 0)}
    assert (producer.acknowledged, producer.unacknowledged) == (4, [])


async def test_a_stale_broker_that_names_itself_does_not_win_over_a_newer_epoch() -> None:
    brokers = Brokers(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer = await started(brokers)
    brokers.views = {1: (1, 0), 2: (2, 1), None: (1, 0)}  # broker 1 is cut off
    await send(producer, b"1")
    assert [node for node, _ in brokers.received] == [1, 2, 2]


async def test_what_the_leader_has_already_is_acknowledged() -> None:
    producer = await started(Brokers(LOST, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    await send(producer, b"1")
    assert producer.acknowledged == 1


async def test_a_batch_that_is_too_large_for_the_topic_is_divided_and_its_records_keep_their_order() -> None:
    brokers = Brokers(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE)
    producer = await started(brokers)
    await send(producer, b"1", b"2", b"3", b"4")
    assert sequences(brokers) == [(1, 0, 4), (1, 0, 2), (1, 0, 1), (1, 1, 1), (1, 2, 2)]
    assert [record.value for _, batch in brokers.received[2:] for record in batch.records()] == [b"1", b"2", b"3", b"4"]
    assert producer.acknowledged == 4


async def test_after_a_rejection_the_records_that_are_not_acknowledged_are_known() -> None:
    brokers = Brokers(ErrorCode.NONE, ErrorCode.INVALID_RECORD)
    producer = await started(brokers)
    await send(producer, b"1", b"2")
    with pytest.raises(ClusterError, match="INVALID_RECORD"):
        await send(producer, b"3", b"4")
    assert (producer.acknowledged, producer.unacknowledged) == (2, [3, 4])


async def test_a_disk_without_room_is_named_when_the_time_is_over() -> None:
    brokers = Brokers(*[ErrorCode.KAFKA_STORAGE_ERROR] * 1000)
    producer = await started(brokers)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await send(producer, b"1")
    assert "t-0" in brokers.doing and "KAFKA_STORAGE_ERROR" in brokers.doing
    assert producer.unacknowledged == [1]


async def test_a_full_disk_is_reported_at_once_and_once_and_the_batch_is_repeated() -> None:
    notes: list[str] = []
    producer = await started(Brokers(*[ErrorCode.KAFKA_STORAGE_ERROR] * 3), notes.append)
    await send(producer, b"1")
    assert notes == [
        "broker 1 cannot write to topic t: no space left in log directory /data (4096 bytes free); trying again"
    ]
    assert producer.acknowledged == 1


@pytest.mark.parametrize("pinned", [True, False])
async def test_what_is_for_a_topic_of_an_id_goes_to_no_other_of_its_name(pinned: bool) -> None:
    brokers = Brokers(ErrorCode.UNKNOWN_TOPIC_ID)
    producer = ClusterProducer(cast(ClusterClient, brokers), "t", topic_id=brokers.topic_id if pinned else None)
    await producer.start()
    brokers.topic_id = b"u" * 16
    if pinned:
        with pytest.raises(ClusterError, match=r"topic t as it was.*UNKNOWN_TOPIC_ID"):
            await send(producer, b"v")
        assert (len(brokers.received), producer.unacknowledged) == (1, [1])
    else:
        await send(producer, b"v")
        assert (len(brokers.received), producer.unacknowledged) == (2, [])


async def test_a_leader_that_leaves_the_partition_out_of_its_answer_is_asked_again_after_a_pause() -> None:
    brokers, pauses = Brokers(), 0
    answer = brokers.request

    async def request(request: object, node: int | None = None, timeout_ms: int | None = None) -> object:
        response = await answer(request, node, timeout_ms)
        if isinstance(response, ProduceResponse) and len(brokers.received) < 3:
            response.responses[0].partition_responses = []
        return response

    async def metadata(topics: Any, node: int | None = None, seen: Any = brokers.metadata) -> MetadataResponse:
        nonlocal pauses
        pauses += 1
        return cast(MetadataResponse, await seen(topics, node))

    producer = await started(brokers)
    vars(brokers).update(request=request, metadata=metadata)
    await send(producer, b"x")
    assert sequences(brokers) == [(1, 0, 1)] * 3 and pauses == 2 and producer.unacknowledged == []
