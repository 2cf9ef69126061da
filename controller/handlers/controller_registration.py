"""ControllerRegistration: a controller says where it is and which features it knows (KIP-919)."""

from __future__ import annotations

from controller.decisions.brokers import register_controller
from controller.decisions.outcome import Outcome
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import CLUSTER_ACTION


def handle(parts: ControllerParts, request: ControllerRegistrationRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, CLUSTER_ACTION)
    response = ControllerRegistrationResponse(error_message=None)
    return parts.controller.write(lambda state: Outcome(register_controller(state, request).records, response))
