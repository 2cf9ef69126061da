"""DeleteGroups (42): delete groups without members, with their offsets (KIP-229). A group named twice is answered once."""

from __future__ import annotations

from ottla.broker.coordinator.gather import then
from ottla.broker.handlers._group_answers import reply
from ottla.broker.parts import BrokerParts
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.deferred import Deferred


def handle(
    broker: BrokerParts, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Deferred:
    answer = broker.groups.delete(list(dict.fromkeys(request.groups_names)))
    response: DeleteGroupsResponse | Deferred = reply(
        then(answer, lambda results: DeleteGroupsResponse(results=results))
    )
    return response
