"""DeleteAcls: remove access control entries that match filters, and return them."""

from __future__ import annotations

from ottla.controller.decisions.acls import delete_acls
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.state import ControlState
from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: DeleteAclsRequest, context: RequestContext
) -> Reply[DeleteAclsResponse]:
    require_on_cluster(components, context, ALTER)
    if not components.authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def decide(state: ControlState) -> Outcome[DeleteAclsResponse]:
        records, results = delete_acls(state, request.filters)
        return Outcome(records, DeleteAclsResponse(filter_results=results))

    return components.controller.write(decide)
