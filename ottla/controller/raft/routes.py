"""The routes of the quorum's APIs, for a controller's listeners: Fetch there is of the metadata log alone.

The listener that has these routes must authorize the sender (ClusterAction).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.wire.requests_in import INVALID, READERS, PendingResponse
from ottla.protocol.api import ApiKey
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Handler, Route


def quorum_routes(node: RaftNode) -> list[Route]:
    rows = [Route(api_key, _handler(node, api_key)) for api_key in READERS]
    rows.append(
        Route(ApiKey.DESCRIBE_QUORUM, lambda request, context: node.describe_quorum(request, context.api_version))
    )
    return rows


def _handler(node: RaftNode, api_key: ApiKey) -> Handler:
    read = READERS[api_key]

    def handle(request: object, context: RequestContext) -> Any:
        body = read(request)
        if body is None:
            return INVALID[api_key]()
        return node.handle(body, PendingResponse(context))

    return handle
