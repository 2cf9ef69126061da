"""A producer whose requests are lost, answered too late, or carried out long after it has given them up: each record is written
once, in order. The test's brokers check sequence numbers as the storage does. A request that timed out may wait in a broker's
socket until later batches of its partition are written: its batches must then be duplicates, and its response is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import producer as module
from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.record import NewRecord
from ottla.storage.producers.producer_states import Origin, ProducerStates
from tests.effort import examples
from tests.manual_clock import ManualClock

NOW = 1_700_000_000_000
PARTITIONS = 3


class Fate(Enum):
    """The fate of a request."""

    ANSWERED = "it is carried out and answered"
    LOST = "it never arrives"
    UNANSWERED = "it is carried out, and its answer is lost"
    LATE = "it is given up, and carried out before the next request is"
    VERY_LATE = "it is given up, and carried out at the end, behind all others"
    REFUSED = "no partition takes it: NOT_ENOUGH_REPLICAS"
    UNREPLICATED = "it is written, and not replicated in time: REQUEST_TIMED_OUT"
    HALF = "its first partition takes it, and the others have moved: NOT_LEADER_OR_FOLLOWER"


class Partition:
    """The log of a partition, as far as a producer can notice it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._producers = ProducerStates()

    def append(self, records: bytes) -> ErrorCode:
        (batch,) = iter_batches(records)
        sequence = batch.base_sequence
        try:
            repeated = self._producers.check(
                batch.producer_id, batch.producer_epoch, sequence, batch.count, False, Origin.CLIENT, len(self.values)
            )
        except KafkaError as error:
            return error.code
        if repeated is None:
            first = len(self.values)
            self.values += [record.value or b"" for record in batch.records()]
            last = len(self.values) - 1
            self._producers.update(batch.producer_id, batch.producer_epoch, sequence, first, last, NOW, False)
        return ErrorCode.NONE


class Brokers:
    """A cluster in which requests have these fates, and later ones are answered."""

    def __init__(self, fates: list[Fate]) -> None:
        self.world = SimpleNamespace(clock=ManualClock())
        self.brokers = {1: ("a", 1), 2: ("b", 1)}
        self.timeout_ms = 30_000
        self.doing = ""
        self.logs = [Partition() for _ in range(PARTITIONS)]
        self.late: list[ProduceRequest] = []
        self.very_late: list[ProduceRequest] = []
        self._fates = fates

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        parts = [
            MetadataResponsePartition(partition_index=index, leader_id=1 + index % 2, leader_epoch=0)
            for index in range(PARTITIONS)
        ]
        return MetadataResponseTopic(name="t", topic_id=b"t" * 16, partitions=parts)

    async def metadata(self, topics: Any, node: int | None = None) -> MetadataResponse:
        return MetadataResponse(topics=[await self.topic("t")])

    async def retry(self, ask: Callable[[], Any]) -> Any:
        return await ask()

    async def request(self, request: object, node: int | None = None, timeout_ms: int | None = None) -> object:
        if not isinstance(request, ProduceRequest):
            return InitProducerIdResponse(producer_id=77, producer_epoch=0)
        fate = self._fates.pop(0) if self._fates else Fate.ANSWERED
        late, self.late = self.late, []
        for each in late:
            self.carry_out(each)
        if fate in (Fate.LOST, Fate.LATE, Fate.VERY_LATE):
            self.late += [request] * (fate is Fate.LATE)
            self.very_late += [request] * (fate is Fate.VERY_LATE)
            raise NoConnection("no answer in time", "")
        codes = self.carry_out(request, fate)
        if fate is Fate.UNANSWERED:
            raise NoConnection("connection lost", "")
        rows = [PartitionProduceResponse(index=index, error_code=code) for index, code in codes.items()]
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=rows)])

    def carry_out(self, request: ProduceRequest, fate: Fate = Fate.ANSWERED) -> dict[int, ErrorCode]:
        codes: dict[int, ErrorCode] = {}
        for data in request.topic_data[0].partition_data:
            if fate is Fate.REFUSED:
                codes[data.index] = ErrorCode.NOT_ENOUGH_REPLICAS
            elif fate is Fate.HALF and codes:
                codes[data.index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                code = self.logs[data.index].append(cast(bytes, data.records))
                codes[data.index] = ErrorCode.REQUEST_TIMED_OUT if not code and fate is Fate.UNREPLICATED else code
        return codes


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.sampled_from(Fate), max_size=25),
    st.lists(st.lists(st.integers(0, PARTITIONS - 1), max_size=8), max_size=8),
)
async def test_each_record_is_there_once_and_in_order_whatever_becomes_of_the_requests(
    fates: list[Fate], flushes: list[list[int]]
) -> None:
    brokers = Brokers(fates)
    written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with patch.object(module, "RETRY_BACKOFF_MS", 0):
        producer = ClusterProducer(cast(ClusterClient, brokers), "t")
        await producer.start()
        for flush in flushes:
            for partition in flush:
                value = b"%d" % producer.sent
                written[partition].append(value)
                await producer.send(NewRecord(None, value, NOW), partition)
            await producer.flush()
    for request in brokers.late + brokers.very_late:
        brokers.carry_out(request)
    assert [log.values for log in brokers.logs] == written
    assert producer.acknowledged == producer.sent and producer.unacknowledged == []
