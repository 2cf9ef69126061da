"""CreateAcls: add access control entries."""

from __future__ import annotations

from controller.decisions.acls import create_acls
from controller.decisions.outcome import Outcome
from controller.decisions.state import ControlState
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: CreateAclsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER)
    if not parts.authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def decide(state: ControlState) -> Outcome[CreateAclsResponse]:
        records, results = create_acls(state, request.creations, parts.world.rng)
        return Outcome(records, CreateAclsResponse(results=results))

    return parts.controller.write(decide)
