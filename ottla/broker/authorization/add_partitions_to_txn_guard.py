"""AddPartitionsToTxn: up to v3 from clients, WRITE on the transactional id and on every topic; from v4 on between brokers.

One topic that is rejected fails the request: the partitions of the others are answered with OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer

BROKERS_ONLY_SINCE = 4


def guard(
    broker: BrokerComponents, handler: HandlerOf[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]
) -> HandlerOf[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse]:
    allows = broker.authorizer.allows

    def add_partitions_to_txn(
        request: AddPartitionsToTxnRequest, context: RequestContext
    ) -> Answer[AddPartitionsToTxnResponse]:
        if context.api_version >= BROKERS_ONLY_SINCE:
            if not allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return handler(request, context)
        if not allows(context, WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        rejected = {t.name for t in request.v3_and_below_topics if not allows(context, WRITE, TOPIC, t.name)}
        return _rejection(broker, request, rejected) if rejected else handler(request, context)

    return add_partitions_to_txn


def _rejection(
    broker: BrokerComponents, request: AddPartitionsToTxnRequest, rejected: set[str]
) -> AddPartitionsToTxnResponse:
    def error(topic: str, index: int) -> ErrorCode:
        if topic in rejected:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if broker.metadata.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
