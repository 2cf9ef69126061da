"""The blocking producer, with brokers played by the test that reject, divide or forget batches."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import iter_batches
from ottla.spark.client import cluster as module
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.producer import BlockingProducer
from ottla.spark.errors import ConnectorError

#: It stands for a response without a row for the partition.
FORGOTTEN = -99


class Broker:
    """One broker with a topic of two partitions. Each batch gets the next of `answers`, then NONE."""

    is_due = False

    def __init__(self, *answers: int) -> None:
        self.answers = deque(answers)
        self.refused: dict[int, int] = {}
        self.received: list[tuple[int, int, int]] = []
        self._responses: deque[Any] = deque()

    def __call__(self, host: str, port: int, security: object) -> Broker:
        return self

    def call(self, request: Any, version_max: int = 0) -> Any:
        self.send(request)
        return self.receive()

    def send(self, request: Any, version_max: int = 0) -> None:
        self._responses.append(self._answer(request))

    def receive(self) -> Any:
        return self._responses.popleft()

    def close(self) -> None:
        return

    def _answer(self, request: Any) -> Any:
        match request:
            case MetadataRequest():
                parts = [MetadataResponsePartition(partition_index=index, leader_id=1) for index in (0, 1)]
                topics = [MetadataResponseTopic(name="t", partitions=parts)]
                return MetadataResponse(brokers=[MetadataResponseBroker(1, "here", 9092)], topics=topics)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=1, host="here", port=9092)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=77, producer_epoch=0)
            case AddPartitionsToTxnRequest():
                rows = [AddPartitionsToTxnPartitionResult(*row) for row in self.refused.items()]
                topics = [AddPartitionsToTxnTopicResult("t", rows)]
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        assert isinstance(request, ProduceRequest)
        return ProduceResponse(responses=[TopicProduceResponse("t", partition_responses=list(self._written(request)))])

    def _written(self, request: ProduceRequest) -> Any:
        for part in request.topic_data[0].partition_data:
            (batch,) = iter_batches(part.records)
            self.received.append((part.index, batch.base_sequence, batch.count))
            code = self.answers.popleft() if self.answers else ErrorCode.NONE
            if code != FORGOTTEN:
                yield PartitionProduceResponse(index=part.index, error_code=code)


def producer_at(broker: Broker, monkeypatch: pytest.MonkeyPatch, name: str | None = None) -> BlockingProducer:
    monkeypatch.setattr(module, "SparkConnection", broker)
    monkeypatch.setattr(module, "RETRY_BACKOFF_SECONDS", 0)
    return BlockingProducer(BlockingCluster({"bootstrap.servers": "here:9092"}), 0, name)


def write(producer: BlockingProducer, *places: int) -> None:
    for index in places:
        producer.add(("t", index), (None, b"x", 0, ()))
    producer.flush()


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, FORGOTTEN])
def test_a_batch_is_sent_again_with_its_sequence_number_until_it_is_acknowledged(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(code, ErrorCode.NONE, code)
    producer = producer_at(broker, monkeypatch)
    write(producer, 0, 0, 1)
    write(producer, 0)
    assert broker.received == [(0, 0, 2), (1, 0, 1), (0, 0, 2), (0, 0, 2), (0, 2, 1)]


def test_a_leader_that_never_answers_for_a_partition_ends_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(*[FORGOTTEN] * 1000)
    producer = producer_at(broker, monkeypatch)
    monkeypatch.setattr(module, "RETRY_SECONDS_MAX", 0.0)
    with pytest.raises(ConnectorError, match="NOT_LEADER_OR_FOLLOWER"):
        write(producer, 0)


def test_a_batch_that_is_too_large_for_the_topic_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(ErrorCode.MESSAGE_TOO_LARGE)
    write(producer_at(broker, monkeypatch), 0, 0, 0)
    assert broker.received == [(0, 0, 3), (0, 0, 1), (0, 1, 2)]
    alone = producer_at(Broker(ErrorCode.MESSAGE_TOO_LARGE), monkeypatch)
    with pytest.raises(ConnectorError, match=r"MESSAGE_TOO_LARGE.*raise max\.message\.bytes"):
        write(alone, 0)


def test_a_transaction_names_the_partition_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    producer = producer_at(broker, monkeypatch, "tx")
    broker.refused = {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(ConnectorError, match="transaction tx, t-1: TOPIC_AUTHORIZATION_FAILED"):
        write(producer, 0, 1)
    assert producer.transaction is None and not broker.received
