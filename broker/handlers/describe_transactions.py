"""DescribeTransactions (65): state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from broker.coordinator.gather import then
from broker.handlers._group_answers import reply
from broker.parts import BrokerParts
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred


def handle(
    broker: BrokerParts, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Deferred:
    described = broker.transactions.coordinator.describe(request.transactional_ids)
    response: DescribeTransactionsResponse | Deferred = reply(
        then(described, lambda states: DescribeTransactionsResponse(transaction_states=states))
    )
    return response
