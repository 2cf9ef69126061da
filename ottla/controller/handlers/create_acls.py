"""CreateAcls: add access control entries."""

from __future__ import annotations

from ottla.controller.decisions.acls import create_acls
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.state import ControlState
from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: CreateAclsRequest, context: RequestContext
) -> Reply[CreateAclsResponse]:
    require_on_cluster(components, context, ALTER)
    if not components.authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")

    def decide(state: ControlState) -> Outcome[CreateAclsResponse]:
        records, results = create_acls(state, request.creations, components.world.rng)
        return Outcome(records, CreateAclsResponse(results=results))

    return components.controller.write(decide)
