"""Produce with records of a transaction: the coordinator has its say before anything is appended (broker/transactions/verify.py).

Off the hot path of other producers: they never come here. Once a partition has the transaction open, nobody is asked, and
the request is appended like any other, unless an earlier one of the same producer is still waiting: then it waits behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.coordinator.outcome import Pending
from broker.coordinator.partition_log import TopicPartition
from broker.parts import BrokerParts
from broker.replication.partition import Partition
from broker.transactions.verify import Operation, Verdicts
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce import PartitionProduceData, ProduceRequest
from protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchView
from server.network.context import RequestContext
from storage.log import Log
from storage.producers import Verification

# In a batch: its format, and the low byte of its attributes.
MAGIC_AT, ATTRIBUTES_AT = 16, 22
MAGIC = 2

ABORTABLE_SINCE = 11
ADDED_SINCE = 12

# Clients that do not expect these from Produce retry this one, without asking for new metadata.
RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Refusals = Mapping[TopicPartition, KafkaError]
NO_REFUSALS: Refusals = {}


def is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _has_transactional_batch(data.records):
                return True
    return False


class _Asked(NamedTuple):
    """A partition where the transaction is not open yet."""

    log: Log
    ticket: Verification


class Admission:
    """What has to be asked for one request; `verdicts` once it was."""

    def __init__(self, broker: BrokerParts, request: ProduceRequest, context: RequestContext) -> None:
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        self._asked: dict[TopicPartition, _Asked] = {}
        self._operation = _operation(context.api_version)
        self._producer: tuple[int, int] | None = None
        now_ms = broker.world.clock.wall_ms()
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = _transactional_batch(data)
                if batch is None:
                    continue
                producer = (batch.producer_id, batch.producer_epoch)
                if self._producer not in (None, producer):
                    raise KafkaError(
                        ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer id"
                    )
                self._producer = producer
                self._consider(_partition(broker, topic.name, topic.topic_id, data.index), batch, now_ms)
        self.verdicts: Verdicts | Pending = {}
        transactional_id = request.transactional_id
        if self._producer is not None and (self._asked or broker.transactions.verifier.is_waiting(transactional_id)):
            self.verdicts = broker.transactions.verifier.admit(
                transactional_id, *self._producer, frozenset(self._asked), self._operation
            )

    def _consider(self, partition: Partition | None, batch: BatchView, now_ms: int) -> None:
        # A partition that is not led here: whoever appends will say so.
        log = None if partition is None else partition.leader_log
        if log is None or log.producers.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        assert partition is not None
        ticket = log.producers.expect_append(
            batch.producer_id,
            batch.base_sequence,
            batch.producer_epoch,
            now_ms,
            supports_epoch_bump=self._operation is Operation.ADDED,
        )
        self._asked[partition.topic, partition.index] = _Asked(log, ticket)

    def refusals(self, verdicts: Verdicts) -> Refusals:
        """To be asked just before the append: what was confirmed may have ended meanwhile."""
        if not self._asked:
            return NO_REFUSALS
        assert self._producer is not None
        refused: dict[TopicPartition, KafkaError] = {}
        for tp, (log, ticket) in self._asked.items():
            error = verdicts[tp]
            if error:
                refused[tp] = _as_produce_says(error, self._operation)
            elif not log.producers.may_append(*self._producer, ticket):
                refused[tp] = KafkaError(
                    ErrorCode.INVALID_TXN_STATE, "the records are not part of an ongoing transaction"
                )
        return refused


def keep_records(request: ProduceRequest) -> None:
    """The request is served later, when the receive buffer holds other things."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytes(data.records))  # type: ignore[arg-type]


def _operation(api_version: int) -> Operation:
    if api_version >= ADDED_SINCE:
        return Operation.ADDED
    return Operation.ABORTABLE if api_version >= ABORTABLE_SINCE else Operation.EXPECTED


def _has_transactional_batch(records: Any) -> bool:
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT
        and records[MAGIC_AT] == MAGIC
    )


def _transactional_batch(data: PartitionProduceData) -> BatchView | None:
    return BatchView(data.records) if _has_transactional_batch(data.records) else None  # type: ignore[arg-type]


def _partition(broker: BrokerParts, topic: str, topic_id: bytes, index: int) -> Partition | None:
    try:
        partition = broker.replicas.lookup(topic, topic_id, index)
    except KafkaError:
        return None
    return None if partition.topic in broker.internal_topics else partition


def _as_produce_says(error: ErrorCode, operation: Operation) -> KafkaError:
    if error == ErrorCode.INVALID_TXN_STATE:
        return KafkaError(error, "the partition was not added to the transaction")
    if error in RETRIABLE or (error == ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADDED):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"unable to verify that the partition has been added to the transaction: {error.name}",
        )
    return KafkaError(error)
