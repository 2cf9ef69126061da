"""EndTxn (26): commit or abort. It is answered when the outcome is in the log; the markers follow.

v2 PRODUCER_FENCED · v4 TRANSACTION_ABORTABLE · v5 every end raises the epoch, and the response says to which (KIP-890).
"""

from __future__ import annotations

from ottla.broker.api._producer_fenced import as_known
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

PRODUCER_FENCED_SINCE = 2


def handle(broker: BrokerComponents, request: EndTxnRequest, context: RequestContext) -> Answer[EndTxnResponse]:
    def shape(response: EndTxnResponse) -> EndTxnResponse:
        response.error_code = as_known(response.error_code, context.api_version, PRODUCER_FENCED_SINCE)
        return response

    return then(broker.transactions.coordinator.end(request, context.api_version), shape)
