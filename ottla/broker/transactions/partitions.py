"""The partitions of a transaction: AddPartitionsToTxn adds them, and confirms them to their leaders (KIP-890)."""

from __future__ import annotations

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.shard import TransactionShard
from ottla.broker.transactions.state import IDLE, PREPARED, State
from ottla.broker.transactions.transaction import Partitions, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError


def add(
    shard: TransactionShard,
    now_ms: int,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Partitions,
    client_transaction_version: int,
) -> Outcome[ErrorCode]:
    """Add partitions to the transaction; the first ones begin it. The response is NONE."""
    transaction = _transaction_of(shard, transactional_id, producer_id, producer_epoch)
    if transaction.state is State.ONGOING and partitions <= transaction.partitions:
        return Outcome(response=ErrorCode.NONE)
    after = transaction.to(
        State.ONGOING,
        now_ms,
        partitions=transaction.partitions | partitions,
        start_ms=now_ms if transaction.state in IDLE else transaction.start_ms,
        client_transaction_version=client_transaction_version,
    )
    return Outcome([after.record()], ErrorCode.NONE)


def verify(
    shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Partitions
) -> dict[TopicPartition, ErrorCode]:
    """Return NONE for partitions of the transaction; for others their producer has to abort."""
    transaction = _transaction_of(shard, transactional_id, producer_id, producer_epoch)
    return {
        tp: ErrorCode.NONE if tp in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions
    }


def _transaction_of(
    shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int
) -> Transaction:
    transaction = shard.find(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Before ids are compared: a producer whose epochs are used up is answered with its next id while the markers are still
    # being written, and begins its next transaction with it. In Java clients INVALID_PRODUCER_ID_MAPPING is fatal.
    if transaction.state in PREPARED and (producer_id, producer_epoch) == transaction.producer_after_end:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction
