"""What administrators see of transactions: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.transactions.state import BY_NAME, PREPARED
from broker.transactions.transaction import NO_PARTITIONS
from protocol.errors import ErrorCode
from protocol.messages import describe_transactions, list_transactions
from protocol.messages.list_transactions import ListTransactionsRequest

if TYPE_CHECKING:
    from broker.transactions.shard import TransactionShard


def describe(shard: TransactionShard, transactional_id: str) -> describe_transactions.TransactionState:
    """Partitions are those whose marker is still to come."""
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        return describe_transactions.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    partitions = transaction.partitions
    if transaction.state in PREPARED:
        left = shard.coordinating.unwritten_markers(transactional_id)
        partitions = NO_PARTITIONS if left is None else left
    topics: dict[str, describe_transactions.TopicData] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, describe_transactions.TopicData(topic=topic)).partitions.append(index)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=list(topics.values()),
    )


def list_transactions_of(
    shard: TransactionShard, request: ListTransactionsRequest, pattern: re.Pattern[str] | None
) -> list[list_transactions.TransactionState]:
    """Those that pass every filter of the request."""
    now_ms = shard.wall_ms()
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = set(request.producer_id_filters)
    found = []
    for transaction in shard.transactions.values():
        if producer_ids and transaction.producer_id not in producer_ids:
            continue
        if request.state_filters and transaction.state not in states:
            continue
        if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
            continue
        if pattern is not None and not pattern.fullmatch(transaction.transactional_id):
            continue
        found.append(
            list_transactions.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.kafka_name,
            )
        )
    return found
