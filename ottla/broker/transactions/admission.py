"""Produce with records of a transaction: the coordinator verifies the partition before anything is appended (broker/transactions/verify.py).

Off the hot path of other producers: they never come here. Once a partition has the transaction open, no request is sent, and
the request is appended like any other, unless an earlier one of the same producer is still waiting: then it waits behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.transactions.verify import AppendVerifier, Expectation, Operation, Verdicts
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest
from ottla.protocol.records.batch import ATTRIBUTES_LOW_AT, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT, BatchView
from ottla.protocol.schema import RequestRecords
from ottla.server.network.context import Answer

ABORTABLE_SINCE = 11
ADDED_SINCE = 12

# Errors that clients do not expect from Produce. They get NOT_ENOUGH_REPLICAS in their place, which they retry without asking for new
# metadata.
RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

PartitionRejections = Mapping[TopicPartition, KafkaError]
NO_REJECTIONS: PartitionRejections = {}


def is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The bit is checked before the call, because every request comes here and few are transactional.
            records = data.records
            if (
                records
                and len(records) > ATTRIBUTES_LOW_AT
                and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT
                and _has_transactional_batch(records)
            ):
                return True
    return False


class Admission:
    """The verifications that one request needs before its first append."""

    def __init__(
        self,
        replicas: Replicas,
        internal_topics: frozenset[str],
        verifier: AppendVerifier,
        request: ProduceRequest,
        api_version: int,
    ) -> None:
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        self._operation = _operation(api_version)
        #: True if batches may have to be prepared. That comes first, because no turn may pass between verification and append.
        self.prepares = False
        producer: tuple[int, int] | None = None
        self._rejected: dict[TopicPartition, KafkaError] = {}
        # The partitions in which the transaction is not open yet.
        expected: dict[TopicPartition, Expectation] = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = _transactional_batch(data)
                if batch is None:
                    continue
                if producer not in (None, (batch.producer_id, batch.producer_epoch)):
                    raise KafkaError(
                        ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer id"
                    )
                producer = (batch.producer_id, batch.producer_epoch)
                partition = replicas.find(topic.name, topic.topic_id, data.index)
                if partition is None or partition.topic in internal_topics:
                    continue  # the append has the reason
                log = partition.leader_log
                if log is None:
                    # This broker may become the partition's leader before the append, and nothing was verified for that.
                    self._rejected[partition.topic, partition.index] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    continue
                if log.rules.may_ask:
                    self.prepares = True
                if log.producers.has_open_transaction(*producer):
                    continue
                expected[partition.topic, partition.index] = Expectation(
                    log.producers, *producer, batch.base_sequence, self._operation is Operation.ADDED
                )
        self._verifier = verifier
        self._transactional_id, self._timeout_ms = request.transactional_id, max(request.timeout_ms, 0)
        self._producer, self._expected = producer, expected

    def ask(self) -> Answer[Verdicts]:
        producer, expected = self._producer, self._expected
        if producer is None or not (expected or self._verifier.is_waiting(self._transactional_id)):
            return {}
        return self._verifier.admit(self._transactional_id, *producer, expected, self._operation, self._timeout_ms)

    def rejections(self, verdicts: Verdicts) -> PartitionRejections:
        if not self._rejected and not any(verdicts.values()):
            return NO_REJECTIONS
        asked = {tp: _as_produce_says(error, self._operation) for tp, error in verdicts.items() if error}
        return self._rejected | asked


def _operation(api_version: int) -> Operation:
    if api_version >= ADDED_SINCE:
        return Operation.ADDED
    return Operation.ABORTABLE if api_version >= ABORTABLE_SINCE else Operation.EXPECTED


def _has_transactional_batch(records: RequestRecords) -> bool:
    return (
        len(records) >= HEADER_BYTES
        and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT != 0
        and records[MAGIC_AT] == MAGIC
    )


def _transactional_batch(data: PartitionProduceData) -> BatchView | None:
    records = data.records
    return BatchView(memoryview(records)) if records is not None and _has_transactional_batch(records) else None


def _as_produce_says(error: ErrorCode, operation: Operation) -> KafkaError:
    if error == ErrorCode.INVALID_TXN_STATE:
        return KafkaError(error, "the partition was not added to the transaction")
    if error in RETRIABLE or (error == ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADDED):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"unable to verify that the partition has been added to the transaction: {error.name}",
        )
    return KafkaError(error)
