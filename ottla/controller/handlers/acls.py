"""CreateAcls: add access control entries. DeleteAcls: remove those that match filters, and return them."""

from __future__ import annotations

from ottla.controller.decisions.acls import create_acls, delete_acls
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle_create(
    components: ControllerComponents, request: CreateAclsRequest, context: RequestContext
) -> Reply[CreateAclsResponse]:
    _check(components, context)

    def decide(state: ControlState) -> Outcome[CreateAclsResponse]:
        records, results = create_acls(state, request.creations, components.world.rng)
        return Outcome(records, CreateAclsResponse(results=results))

    return components.controller.write(decide)


def handle_delete(
    components: ControllerComponents, request: DeleteAclsRequest, context: RequestContext
) -> Reply[DeleteAclsResponse]:
    _check(components, context)

    def decide(state: ControlState) -> Outcome[DeleteAclsResponse]:
        records, results = delete_acls(state, request.filters)
        return Outcome(records, DeleteAclsResponse(filter_results=results))

    return components.controller.write(decide)


def _check(components: ControllerComponents, context: RequestContext) -> None:
    components.require_on_cluster(context, ALTER)
    if not components.authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
