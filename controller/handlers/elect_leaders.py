"""ElectLeaders: preferred leaders, or unclean ones where somebody prefers lost records to no partition."""

from __future__ import annotations

from controller.decisions.elections import elect_leaders
from controller.handlers.authorization import require_on_cluster
from controller.handlers.deadlines import refuse_timed_out
from controller.handlers.parts import ControllerParts
from protocol.messages.elect_leaders import ElectLeadersRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: ElectLeadersRequest, context: RequestContext) -> Deferred:
    refuse_timed_out(request.timeout_ms)
    require_on_cluster(parts, context, ALTER)
    return parts.controller.write(lambda state: elect_leaders(state, request))
