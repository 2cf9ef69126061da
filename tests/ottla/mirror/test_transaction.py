"""The producer of a lane in a cluster that rejects requests: which partition is stopped, who is fenced, and what is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import ClusterClient, Leaders, NoConnection
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.mirror.batches import Outgoing
from ottla.mirror.transaction import Fenced, LaneProducer, PlaceFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch

PLACES: list[TopicPartition] = [("t", 0), ("t", 1)]


class Target(ClusterClient):
    """A cluster of one broker.

    `codes` has the error code of each partition; `answers` has the responses before the usual response to a request.
    """

    def __init__(self) -> None:
        super().__init__(cast(Any, SimpleNamespace()), [], 1_000)
        self.codes: dict[int, int] = {}
        self.answers: list[Any] = []
        self.seen: list[tuple[object, int | None]] = []
        self.coordinators = iter([7, 8, 9])
        self.release: asyncio.Event | None = None

    async def coordinator(self, key: str, key_type: int = 0) -> int:
        return next(self.coordinators)

    async def request(self, request: Any, node: int | None = None, **how: Any) -> Any:
        self.seen.append((request, node))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.release is not None and isinstance(request, ProduceRequest):
            await self.release.wait()
        match request:
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=5, producer_epoch=2)
            case AddPartitionsToTxnRequest():
                return added(self.codes)
            case EndTxnRequest():
                return EndTxnResponse()
            case ProduceRequest():
                return produced(request, self.codes)
        raise AssertionError(request)


def added(codes: dict[int, int]) -> AddPartitionsToTxnResponse:
    rows = [AddPartitionsToTxnPartitionResult(index, codes.get(index, 0)) for _, index in PLACES]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", rows)])


def produced(request: ProduceRequest, codes: dict[int, int]) -> ProduceResponse:
    topics = [
        TopicProduceResponse(
            topic.name,
            partition_responses=[
                PartitionProduceResponse(part.index, codes.get(part.index, 0), base_offset=100 + part.index)
                for part in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(topics)


def leaders_of(cluster: ClusterClient, node: int = 1) -> Leaders:
    leaders = Leaders(cluster, ["t"])
    parts = [MetadataResponsePartition(partition_index=index, leader_id=node, leader_epoch=3) for _, index in PLACES]
    leaders.take(MetadataResponseTopic(name="t", topic_id=bytes(16), partitions=parts))
    return leaders


def one_batch() -> Outgoing:
    return Outgoing(BatchView(memoryview(bytearray(build_batch([(b"k", b"v", 1)])))), (), 0)


async def started(transactional_id: str | None = "lane") -> tuple[Target, LaneProducer]:
    cluster = Target()
    producer = LaneProducer(cluster, leaders_of(cluster), transactional_id)
    await producer.start()
    return cluster, producer


async def test_a_transaction_is_begun_written_and_committed_at_its_coordinator() -> None:
    cluster, producer = await started()
    await producer.begin(PLACES)
    assert await producer.produce({place: [one_batch()] for place in PLACES}) == {("t", 0): [100], ("t", 1): [101]}
    await producer.end(commit=True)
    kinds = [(type(request).__name__, node) for request, node in cluster.seen]
    assert kinds == [
        ("InitProducerIdRequest", 7),
        ("AddPartitionsToTxnRequest", 7),
        ("ProduceRequest", 1),
        ("EndTxnRequest", 7),
    ]
    await producer.end(commit=True)
    assert len(cluster.seen) == 4, "a transaction that is over is ended again"


async def test_without_transactions_only_records_are_sent() -> None:
    cluster, producer = await started(None)
    await producer.begin(PLACES)
    await producer.produce({PLACES[0]: [one_batch()]})
    await producer.end(commit=True)
    assert [type(request).__name__ for request, _ in cluster.seen] == ["InitProducerIdRequest", "ProduceRequest"]


async def test_a_coordinator_that_has_moved_is_looked_for() -> None:
    cluster, producer = await started()
    cluster.answers = [added({0: ErrorCode.NOT_COORDINATOR})]
    await producer.begin(PLACES)
    assert [node for _, node in cluster.seen] == [7, 7, 8]


async def test_a_partition_that_is_not_added_is_named() -> None:
    cluster, producer = await started()
    cluster.codes = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(PlaceFailed, match="partition t-1") as failed:
        await producer.begin(PLACES)
    assert failed.value.at == ("t", 1) and failed.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("step", ["begin", "produce", "end"])
async def test_a_worker_whose_lane_another_has_is_fenced_at_each_step(code: int, step: str) -> None:
    cluster, producer = await started()
    steps: dict[str, Callable[[], Any]] = {
        "begin": lambda: producer.begin(PLACES),
        "produce": lambda: producer.produce({PLACES[1]: [one_batch()]}),
        "end": lambda: producer.end(commit=True),
    }
    if step != "begin":
        await producer.begin(PLACES)
    cluster.codes = {1: code}
    cluster.answers = [EndTxnResponse(error_code=code)] if step == "end" else []
    with pytest.raises(Fenced):
        await steps[step]()


@pytest.mark.parametrize(
    ("code", "stops_the_partition"),
    [
        (ErrorCode.INVALID_RECORD, True),
        (ErrorCode.MESSAGE_TOO_LARGE, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),  # its disk is full; the other partitions go on
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),  # it was deleted
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, True),  # it is a duplicate, so its offset is not known
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
    ],
)
async def test_what_one_partition_rejects_stops_it_alone_and_what_passes_stops_the_transaction(
    code: int, stops_the_partition: bool
) -> None:
    cluster, producer = await started()
    cluster.codes = {1: code}
    with pytest.raises(ClusterError, match="partition t-1 of the target") as failed:
        await producer.produce({place: [one_batch()] for place in PLACES})
    assert isinstance(failed.value, PlaceFailed) is stops_the_partition
    assert failed.value.code == code


async def test_a_leader_that_does_not_answer_is_forgotten() -> None:
    cluster, producer = await started()
    cluster.answers = [NoConnection("broker 1 is away")]
    with pytest.raises(NoConnection):
        await producer.produce({PLACES[0]: [one_batch()]})
    with pytest.raises(Failure, match="partition t-0 of the target has no leader"):
        await producer.produce({PLACES[0]: [one_batch()]})


async def test_a_partition_without_a_leader_is_not_written() -> None:
    cluster = Target()
    producer = LaneProducer(cluster, leaders_of(cluster, NO_LEADER), None)
    with pytest.raises(Failure, match="has no leader"):
        await producer.produce({PLACES[0]: [one_batch()]})
    assert not cluster.seen


async def test_at_most_five_requests_are_in_flight_and_their_sequences_follow() -> None:
    cluster, producer = await started()
    cluster.release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(producer.produce({PLACES[0]: [one_batch() for _ in range(7)]}))
        for _ in range(30):
            await asyncio.sleep(0)
        assert len(cluster.seen) - 1 == 5
        cluster.release.set()
    assert writing.result() == {PLACES[0]: [100] * 7}
    sent = [request for request, _ in cluster.seen if isinstance(request, ProduceRequest)]
    batches = [BatchView(memoryview(bytes(cast(Any, each.topic_data[0].partition_data[0].records)))) for each in sent]
    assert [each.base_sequence for each in batches] == list(range(7))


async def test_requests_in_flight_end_with_a_failure() -> None:
    """A batch that is still in flight must not be written after the transaction was given up."""
    cluster, producer = await started()
    cluster.release = asyncio.Event()
    rejected = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.answers = [ProduceResponse([TopicProduceResponse("t", partition_responses=[rejected])])]
    before = asyncio.all_tasks()
    with pytest.raises(ClusterError):
        await producer.produce({PLACES[0]: [one_batch(), one_batch()]})
    assert len(cluster.seen) == 3 and asyncio.all_tasks() == before
