"""AlterClientQuotas: set or remove quotas of users, clients and addresses."""

from __future__ import annotations

from controller.decisions.client_quotas import alter_client_quotas
from controller.decisions.outcome import Outcome
from controller.decisions.state import ControlState
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER_CONFIGS


def handle(parts: ControllerParts, request: AlterClientQuotasRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER_CONFIGS)

    def decide(state: ControlState) -> Outcome[AlterClientQuotasResponse]:
        records, entries = alter_client_quotas(state, request.entries, validate_only=request.validate_only)
        return Outcome(records, AlterClientQuotasResponse(entries=entries))

    return parts.controller.write(decide)
