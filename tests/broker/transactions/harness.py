"""A transaction coordinator on a log in memory, partitions that take markers, and producers; time passes only when a test advances the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.markers import MarkerRoutes, Results
from ottla.broker.transactions.transaction import TransactionRecordCodec
from ottla.broker.transactions.transaction_coordinator import TOPIC, TransactionCoordinator
from ottla.broker.transactions.transaction_shard import TransactionConfig, TransactionShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.shared_structs import PartitionErrorCode, TopicPartitionErrors
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.server.network.context import Reply
from tests.broker.coordinator.harness import CoordinatorHarness

TP = (TOPIC, 0)
HERE = 1
PARKED = "parked"


def parse(partition: str) -> TopicPartition:
    topic, _, index = partition.rpartition("-")
    return topic, int(index)


def text(tp: TopicPartition) -> str:
    return f"{tp[0]}-{tp[1]}"


class ProducerIds:
    """A source of producer ids from 100 on. It gives them at once, unless `hold` is set."""

    def __init__(self) -> None:
        self.next = 100
        self.hold = False
        self.waiting: list[Callable[[int, ErrorCode], None]] = []

    def take(self, receive: Callable[[int, ErrorCode], None]) -> None:
        if self.hold:
            self.waiting.append(receive)
            return
        self.next += 1
        receive(self.next - 1, ErrorCode.NONE)


class TransactionCoordinatorHarness(CoordinatorHarness[TransactionCoordinator]):
    """One partition of `__transaction_state`, led by broker 1."""

    tp = TP

    def __init__(self, *, transaction_version: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.transaction_version = transaction_version
        self.producer_ids = ProducerIds()
        self.printed: list[str] = []
        # The markers that were sent: (partition, producer id, epoch, commit?)
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.leaders: dict[TopicPartition, int] = {}
        self.gone: set[TopicPartition] = set()
        self.takes: dict[TopicPartition, str] = {}
        self._late: list[tuple[TopicPartition, Callable[[], None]]] = []
        super().__init__()

    def _coordinator(self) -> TransactionCoordinator:
        routes = MarkerRoutes(HERE, self._leader_of, self._write_here, self._send, self._spawn, self.clock)
        return TransactionCoordinator(
            self.config, self.log, routes, self.producer_ids, lambda: 1, lambda: self.transaction_version
        )

    def _codec(self) -> TransactionRecordCodec:
        return TransactionRecordCodec(lambda: self.transaction_version)

    @property
    def shard(self) -> TransactionShard:
        return self.coordinator.runtime.shard(0)

    # ---- the way of markers

    def _leader_of(self, tp: TopicPartition) -> int | None:
        return None if tp in self.gone else self.leaders.get(tp, HERE)

    def _write_here(self, marker: WritableTxnMarker, done: Callable[[Results], None]) -> None:
        partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        late = [tp for tp in partitions if self.takes.get(tp) == "later"]
        if late:  # decided here, because another partition of the request may be late as well
            self._late.append((late[0], lambda: self._write_here(marker, done)))
        else:
            done({tp: self._take(tp, marker) for tp in partitions})

    def _take(self, tp: TopicPartition, marker: WritableTxnMarker) -> ErrorCode:
        error = ErrorCode[self.takes.get(tp, "NONE")]
        result = "commit" if marker.transaction_result else "abort"
        self.printed.append(
            f"marker {text(tp)} {result} {marker.producer_id}/{marker.producer_epoch} by {marker.coordinator_epoch}"
            f" v{marker.transaction_version}" + (f" {error.name}" if error else "")
        )
        if not error:
            self.markers.append((tp, marker.producer_id, marker.producer_epoch, marker.transaction_result))
        return error

    async def _send(self, node_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        self.printed.append(f"to broker {node_id}:")
        if node_id == 9:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "unreachable")
        topics = [
            TopicPartitionErrors(
                name=topic.name,
                partitions=[
                    PartitionErrorCode(index, self._take((topic.name, index), marker))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(marker.producer_id, topics)])

    def _spawn(self, coroutine: Any, name: str) -> None:
        # The coroutine never waits, because the other broker answers at once.
        asyncio.run(coroutine)

    def marker_behaviour(self, partition: str, behaviour: str) -> None:
        tp = parse(partition)
        self.takes[tp] = behaviour
        if behaviour != "later":
            due = [answer for late, answer in self._late if late == tp]
            self._late = [entry for entry in self._late if entry[0] != tp]
            for answer in due:
                answer()


class TransactionalProducer:
    """A producer that remembers what a client remembers: its id and epoch."""

    def __init__(self, harness: TransactionCoordinatorHarness, transactional_id: str = "x") -> None:
        self.harness = harness
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        # Gets the response to the next request, at once or later.
        self.then: Callable[[Any], None] | None = None

    def init(self, *, timeout: int = 60_000, resume: bool = False) -> Any:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout)
        if resume:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        return self._receive(self.harness.coordinator.init_producer_id(request), self._learn)

    def add(self, *partitions: str, version: int = 2) -> Any:
        added = frozenset(map(parse, partitions))
        return self._receive(
            self.harness.coordinator.add_partitions(self.transactional_id, self.producer_id, self.epoch, added, version)
        )

    def verify(self, *partitions: str) -> Any:
        asked = frozenset(map(parse, partitions))
        return self._receive(
            self.harness.coordinator.verify_partitions(self.transactional_id, self.producer_id, self.epoch, asked)
        )

    def end(self, commit: bool, *, version: int = 2, epoch: int = 0) -> Any:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch + epoch, commit)
        return self._receive(self.harness.coordinator.end(request, 5 if version == 2 else 4), self._learn)

    def _learn(self, response: Any) -> None:
        if not response.error_code and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def _receive(self, answer: Any, learn: Callable[[Any], None] | None = None) -> Any:
        """Return the response, or PARKED if it comes later; then it is printed when it comes."""
        arrived: list[Any] = []
        then, self.then = self.then, None

        def receive(response: Any) -> None:
            if learn is not None:
                learn(response)
            if arrived:
                self.harness.printed.append(f"then: {said(response)}")
            arrived.append(response)
            if then is not None:
                then(response)

        if type(answer) is not Reply:
            receive(answer)
            return answer
        if answer.done:
            answer.when_done(receive)
            return arrived[0]
        arrived.append(PARKED)
        answer.when_done(receive)
        return PARKED


def said(response: Any) -> str:
    if isinstance(response, str):
        return response
    if isinstance(response, ErrorCode):
        return response.name
    if isinstance(response, dict):
        return " ".join(f"{text(tp)}={error.name}" for tp, error in sorted(response.items()))
    code = ErrorCode(response.error_code).name
    return f"{code} {response.producer_id}/{response.producer_epoch}" if response.producer_id >= 0 else code
