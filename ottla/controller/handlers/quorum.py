"""Authorization of the quorum's own APIs. Their handlers are in raft/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.api import ApiKey
from ottla.server.authorization.operations import ALTER, CLUSTER_ACTION, DESCRIBE
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Handler, Route

#: Operation on the cluster, by API.
QUORUM_OPERATIONS: Mapping[ApiKey, int] = {
    ApiKey.FETCH: CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: CLUSTER_ACTION,
    ApiKey.VOTE: CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: CLUSTER_ACTION,
    ApiKey.UPDATE_RAFT_VOTER: CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: ALTER,
    ApiKey.REMOVE_RAFT_VOTER: ALTER,
    ApiKey.DESCRIBE_QUORUM: DESCRIBE,
}


def guard_quorum(components: ControllerComponents, quorum: Iterable[Route]) -> list[Route]:
    """Adds authorization to the routes. Without an authorizer it returns them unchanged, so that the quorum's fetches cost no more."""
    if not components.authorizer.enabled:
        return list(quorum)
    return [
        Route(route.api_key, _guarded(components, QUORUM_OPERATIONS[ApiKey(route.api_key)], route.handler))
        for route in quorum
    ]


def _guarded(components: ControllerComponents, operation: int, handler: Handler) -> Handler:
    def handle(request: Any, context: RequestContext) -> Any:
        require_on_cluster(components, context, operation)
        return handler(request, context)

    return handle
