"""DescribeTransactions (65): state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: DescribeTransactionsRequest, context: RequestContext
) -> Answer[DescribeTransactionsResponse]:
    described = broker.transactions.coordinator.describe(request.transactional_ids)
    return then(described, lambda states: DescribeTransactionsResponse(transaction_states=states))
