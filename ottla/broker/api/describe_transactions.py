"""DescribeTransactions (65): state and partitions of transactional ids (KIP-664). Topics that the client may not DESCRIBE are left out."""

from __future__ import annotations

from ottla.broker.authorization.checks import split
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.server.authorization.operations import DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: DescribeTransactionsRequest, context: RequestContext
) -> Answer[DescribeTransactionsResponse]:
    def shape(states: list[TransactionState]) -> DescribeTransactionsResponse:
        for state in states:
            state.topics, _ = split(broker, context, DESCRIBE, TOPIC, state.topics, lambda topic: topic.topic)
        return DescribeTransactionsResponse(transaction_states=states)

    return then(broker.transactions.coordinator.describe(request.transactional_ids), shape)
