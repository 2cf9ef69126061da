"""DescribeTransactions (65): state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.broker.coordinator.gather import then
from ottla.broker.handlers._group_answers import reply
from ottla.broker.parts import BrokerParts
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.deferred import Deferred


def handle(
    broker: BrokerParts, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Deferred:
    described = broker.transactions.coordinator.describe(request.transactional_ids)
    response: DescribeTransactionsResponse | Deferred = reply(
        then(described, lambda states: DescribeTransactionsResponse(transaction_states=states))
    )
    return response
