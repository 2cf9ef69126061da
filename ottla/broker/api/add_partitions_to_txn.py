"""AddPartitionsToTxn (24): add partitions to transactions, or, from brokers, verify that they were added.

One partition that cannot join keeps all of its transaction's from joining: OPERATION_NOT_ATTEMPTED. v0-3 are clients'
with one transaction, WRITE on its id and on every topic · v2 PRODUCER_FENCED · v4 several, from brokers, verify_only (KIP-890) · v5 TRANSACTION_ABORTABLE.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION  the partition does not exist
    OPERATION_NOT_ATTEMPTED     another partition of the transaction cannot be added
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.api._producer_fenced import as_known
from ottla.broker.authorization.checks import require, split
from ottla.broker.components import BrokerComponents
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.transaction_states import EPOCH_BUMP_SINCE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, gather, then

BATCHED_SINCE = 4
PRODUCER_FENCED_SINCE = 2


def handle(
    broker: BrokerComponents, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Answer[AddPartitionsToTxnResponse]:
    if context.api_version < BATCHED_SINCE:
        require(broker, context, WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
        _, denied = split(broker, context, WRITE, TOPIC, request.v3_and_below_topics, lambda topic: topic.name)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        answer = then(
            _add(broker, transaction, context.api_version, {topic.name for topic in denied}),
            lambda result: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results),
        )
    else:
        require(broker, context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        answer = gather(
            [_add(broker, transaction, context.api_version) for transaction in request.transactions],
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )
    return answer


def _add(
    broker: BrokerComponents,
    transaction: AddPartitionsToTxnTransaction,
    api_version: int,
    denied: Collection[str] = (),
) -> Answer[AddPartitionsToTxnResult]:
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    transactional_id = transaction.transactional_id
    rejected = {
        tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED if tp[0] in denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for tp in partitions
        if tp[0] in denied or broker.metadata.partition(*tp) is None
    }
    if rejected:
        others = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return _result(transactional_id, others | rejected, api_version)
    asked = frozenset(partitions)
    producer = (transaction.producer_id, transaction.producer_epoch)
    coordinator = broker.transactions.coordinator
    if transaction.verify_only:
        verdicts = coordinator.verify_partitions(transactional_id, *producer, asked)
        return then(verdicts, lambda errors: _result(transactional_id, errors, api_version))
    # Clients add before v4; what brokers add is for clients of version 2.
    version = EPOCH_BUMP_SINCE if api_version >= BATCHED_SINCE else 0
    added = coordinator.add_partitions(transactional_id, *producer, asked, version)
    return then(added, lambda error: _result(transactional_id, dict.fromkeys(partitions, error), api_version))


def _result(
    transactional_id: str, errors: dict[TopicPartition, ErrorCode], api_version: int
) -> AddPartitionsToTxnResult:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        code = as_known(error, api_version, PRODUCER_FENCED_SINCE)
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, code))
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=list(topics.values()))
