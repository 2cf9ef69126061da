"""Transactions for administrators: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.modern.offload import compiled
from ottla.broker.transactions.transaction import NO_PARTITIONS, Transaction, by_topic
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.broker.transactions.transaction_states import BY_NAME, PREPARED
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import describe_transactions, list_transactions
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.shared_structs import TopicNamePartitions


def describe(shard: TransactionShard, transactional_id: str) -> describe_transactions.TransactionState:
    """Describe transactions; their partitions are those whose marker is not written yet."""
    transaction = shard.find(transactional_id)
    if transaction is None:
        return describe_transactions.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    partitions = transaction.partitions
    if transaction.state in PREPARED:
        left = shard.coordinating.unwritten_markers(transactional_id)
        partitions = NO_PARTITIONS if left is None else left
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicNamePartitions(name, indexes) for name, indexes in by_topic(partitions).items()],
    )


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Returns a function that is True for a matching transactional id, with the bounds of groups' expressions.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, also if the pattern is too large or not Unicode.
    """
    if not pattern:
        return lambda transactional_id: True
    try:
        expression = compiled(pattern)
    except ValueError as error:  # UnicodeEncodeError is one
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return lambda transactional_id: expression.fullmatch(transactional_id) is not None


def listed(
    now_ms: int, request: ListTransactionsRequest
) -> Callable[[Transaction], list_transactions.TransactionState | None]:
    """Returns a function that shows a transaction, None if it does not pass every filter of the request.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, also if the pattern is too large or not Unicode.
    """
    matches = matcher(request.transactional_id_pattern)
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = set(request.producer_id_filters)

    def show(transaction: Transaction) -> list_transactions.TransactionState | None:
        if producer_ids and transaction.producer_id not in producer_ids:
            return None
        if request.state_filters and transaction.state not in states:
            return None
        if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
            return None
        if not matches(transaction.transactional_id):
            return None
        return list_transactions.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.kafka_name,
        )

    return show
