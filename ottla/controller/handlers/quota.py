"""The controller_mutation_rate of a client whose request the controller decides (KIP-599): that of the client, not of the broker that forwarded."""

from __future__ import annotations

from ottla.controller.handlers.components import ControllerComponents
from ottla.server.network.context import RequestContext
from ottla.server.quotas.mutations import MutationQuota


def mutation_quota(components: ControllerComponents, context: RequestContext, *, strict_since: int) -> MutationQuota:
    """The quota of a request; `strict_since` is the first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
    principal = context.connection.principal
    return components.quotas.mutations(principal.name, context.client_id, strict=context.api_version >= strict_since)
