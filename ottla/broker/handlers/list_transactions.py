"""ListTransactions (66): the transactional ids coordinated here (KIP-664).

v1 only those that are open for longer than duration_filter (KIP-994) · v2 a pattern for the ids (KIP-1152).
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: ListTransactionsRequest, context: RequestContext
) -> Answer[ListTransactionsResponse]:
    return broker.transactions.coordinator.list(request)
