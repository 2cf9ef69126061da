"""UnregisterBroker: forget a broker that will not come back."""

from __future__ import annotations

from controller.decisions.brokers import unregister_broker
from controller.decisions.outcome import Outcome
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: UnregisterBrokerRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER)
    response = UnregisterBrokerResponse(error_message=None)
    return parts.controller.write(lambda state: Outcome(unregister_broker(state, request.broker_id).records, response))
