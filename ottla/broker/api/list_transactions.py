"""ListTransactions (66): the transactional ids coordinated here that the client may DESCRIBE (KIP-664).

v1 only those that are open for longer than duration_filter (KIP-994) · v2 a pattern for the ids (KIP-1152).
"""

from __future__ import annotations

from ottla.broker.authorization.checks import split
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.server.authorization.operations import DESCRIBE, TRANSACTIONAL_ID
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: ListTransactionsRequest, context: RequestContext
) -> Answer[ListTransactionsResponse]:
    def shape(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states, _ = split(
            broker, context, DESCRIBE, TRANSACTIONAL_ID, response.transaction_states, lambda each: each.transactional_id
        )
        return response

    return then(broker.transactions.coordinator.list(request), shape)
