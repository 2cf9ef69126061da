"""DeleteAcls: remove access control entries that match filters, and say which they were."""

from __future__ import annotations

from controller.decisions.acls import delete_acls
from controller.decisions.outcome import Outcome
from controller.decisions.state import ControlState
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: DeleteAclsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER)
    if not parts.authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def decide(state: ControlState) -> Outcome[DeleteAclsResponse]:
        records, results = delete_acls(state, request.filters)
        return Outcome(records, DeleteAclsResponse(filter_results=results))

    return parts.controller.write(decide)
