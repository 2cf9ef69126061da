"""Transactions of producers: their ids and epochs, the partitions that join, their end, and their descriptions for
administrators (KIP-98, KIP-664).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeVar

from ottla.broker.api.groups import asker_of
from ottla.broker.authorization import require, split
from ottla.broker.components import BrokerComponents
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.groups.group_coordinator_service import TOPIC as GROUP_METADATA_TOPIC
from ottla.broker.transactions.transaction import EPOCH_BUMP_SINCE
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.server.authorization.operations import (
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DESCRIBE,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from ottla.server.network.context import Answer, Reply, RequestContext, gather, then

#: The versions that know PRODUCER_FENCED (KIP-588).
PRODUCER_FENCED_SINCE = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
#: The version of AddPartitionsToTxn with several transactions.
BATCHED_SINCE = 4
ResponseT = TypeVar("ResponseT", InitProducerIdResponse, EndTxnResponse)


def as_known(context: RequestContext, error: int) -> int:
    """Return the error, or its substitute where the client's version does not know it.

    Errors:
        INVALID_PRODUCER_EPOCH  in place of PRODUCER_FENCED, to a client that is older than this error
    """
    if error == ErrorCode.PRODUCER_FENCED and context.api_version < PRODUCER_FENCED_SINCE[ApiKey(context.api_key)]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _with_known_error(context: RequestContext, response: ResponseT) -> ResponseT:
    response.error_code = as_known(context, response.error_code)
    return response


def init_producer_id(
    broker: BrokerComponents, request: InitProducerIdRequest, context: RequestContext
) -> Answer[InitProducerIdResponse]:
    """InitProducerId (22): an id for an idempotent producer, or the next epoch of a transactional one, which fences the last.

    WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679).
    Without a transactional id it is a fresh id with epoch 0, and nothing is remembered here about it.

    v2 flexible · v3 producer_id and epoch to resume with (KIP-360; an idempotent producer just gets a new id) · v4 PRODUCER_FENCED
    v5 TRANSACTION_ABORTABLE (KIP-890) · v6 two-phase commit, unstable (KIP-939).

    Errors:
        INVALID_REQUEST  a producer id without an epoch, or an epoch without an id
    """
    _require_producer(broker, request, context)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer_id and producer_epoch go together")
    if request.transactional_id is None:
        return _idempotent(broker)
    return then(
        broker.transactions.coordinator.init_producer_id(request, asker_of(context)),
        partial(_with_known_error, context),
    )


def _require_producer(broker: BrokerComponents, request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        for operation in (WRITE, TWO_PHASE_COMMIT) if request.enable_2pc else (WRITE,):
            require(broker, context, operation, TRANSACTIONAL_ID, request.transactional_id)
    elif not broker.authorizer.allows_any(context, WRITE, TOPIC):
        require(broker, context, IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)


def _idempotent(broker: BrokerComponents) -> Reply[InitProducerIdResponse]:
    reply: Reply[InitProducerIdResponse] = Reply()

    def receive(producer_id: int, error: ErrorCode) -> None:
        reply.complete(
            InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=-1 if error else 0)
        )

    broker.producer_ids.take(receive)
    return reply


def add_partitions_to_txn(
    broker: BrokerComponents, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Answer[AddPartitionsToTxnResponse]:
    """AddPartitionsToTxn (24): add partitions to transactions, or, from brokers, verify that they were added.

    If one partition cannot join its transaction, none of the others in the request joins it: OPERATION_NOT_ATTEMPTED. v0-3 are
    clients' with one transaction, WRITE on its id and on every topic · v2 PRODUCER_FENCED · v4 several, from brokers,
    verify_only (KIP-890) · v5 TRANSACTION_ABORTABLE.

    Errors:
        UNKNOWN_TOPIC_OR_PARTITION  the partition does not exist
        OPERATION_NOT_ATTEMPTED     another partition of the transaction cannot be added
    """
    if context.api_version < BATCHED_SINCE:
        require(broker, context, WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
        _, denied = split(broker, context, WRITE, TOPIC, request.v3_and_below_topics, lambda topic: topic.name)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return then(
            _add(broker, context, transaction, {topic.name for topic in denied}),
            lambda result: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results),
        )
    require(broker, context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    return gather(
        [_add(broker, context, transaction) for transaction in request.transactions],
        lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
    )


def _add(
    broker: BrokerComponents,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    denied: Collection[str] = (),
) -> Answer[AddPartitionsToTxnResult]:
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    transactional_id = transaction.transactional_id

    def result(errors: Mapping[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
        topics: dict[str, AddPartitionsToTxnTopicResult] = {}
        for (name, index), error in errors.items():
            topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
            row = AddPartitionsToTxnPartitionResult(index, as_known(context, error))
            topic.results_by_partition.append(row)
        return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=list(topics.values()))

    rejected = {
        tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED if tp[0] in denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for tp in partitions
        if tp[0] in denied or broker.metadata.partition(*tp) is None
    }
    if rejected:
        return result(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | rejected)
    asked = frozenset(partitions)
    producer = (transaction.producer_id, transaction.producer_epoch)
    coordinator = broker.transactions.coordinator
    if transaction.verify_only:
        return then(coordinator.verify_partitions(transactional_id, *producer, asked), result)
    # Clients send this before v4. From v4 on a broker sends it, for clients whose transactions have version 2.
    version = EPOCH_BUMP_SINCE if context.api_version >= BATCHED_SINCE else 0
    cause = ("AddPartitionsToTxn", asker_of(context))
    added = coordinator.add_partitions(transactional_id, *producer, asked, version, cause)
    return then(added, lambda error: result(dict.fromkeys(partitions, error)))


def add_offsets_to_txn(
    broker: BrokerComponents, request: AddOffsetsToTxnRequest, context: RequestContext
) -> Answer[AddOffsetsToTxnResponse]:
    """AddOffsetsToTxn (25): the partition that holds a group's offsets joins a transaction. v2 PRODUCER_FENCED."""
    added = broker.transactions.coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset([(GROUP_METADATA_TOPIC, broker.groups.partition_for(request.group_id))]),
        client_transaction_version=0,
        cause=("AddOffsetsToTxn", asker_of(context)),
    )
    return then(added, lambda error: AddOffsetsToTxnResponse(error_code=as_known(context, error)))


def end_txn(broker: BrokerComponents, request: EndTxnRequest, context: RequestContext) -> Answer[EndTxnResponse]:
    """EndTxn (26): commit or abort. It is answered when the outcome is in the log; the markers follow.

    v2 PRODUCER_FENCED · v4 TRANSACTION_ABORTABLE · v5 every end raises the epoch, and the response says to which (KIP-890).
    """
    return then(
        broker.transactions.coordinator.end(request, context.api_version, asker_of(context)),
        partial(_with_known_error, context),
    )


def describe_transactions(
    broker: BrokerComponents, request: DescribeTransactionsRequest, context: RequestContext
) -> Answer[DescribeTransactionsResponse]:
    """DescribeTransactions (65): state and partitions of transactional ids (KIP-664). Topics that the client may not DESCRIBE are left out."""

    def shape(states: list[TransactionState]) -> DescribeTransactionsResponse:
        for state in states:
            state.topics, _ = split(broker, context, DESCRIBE, TOPIC, state.topics, lambda topic: topic.topic)
        return DescribeTransactionsResponse(transaction_states=states)

    return then(broker.transactions.coordinator.describe(request.transactional_ids), shape)


def list_transactions(
    broker: BrokerComponents, request: ListTransactionsRequest, context: RequestContext
) -> Answer[ListTransactionsResponse]:
    """ListTransactions (66): the transactional ids coordinated here that the client may DESCRIBE (KIP-664).

    v1 only those that are open for longer than duration_filter (KIP-994) · v2 a pattern for the ids (KIP-1152).
    """

    def shape(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states, _ = split(
            broker, context, DESCRIBE, TRANSACTIONAL_ID, response.transaction_states, lambda each: each.transactional_id
        )
        return response

    return then(broker.transactions.coordinator.list(request), shape)
