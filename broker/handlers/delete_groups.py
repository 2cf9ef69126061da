"""DeleteGroups (42): delete groups without members, with their offsets (KIP-229). A group named twice is answered once."""

from __future__ import annotations

from broker.coordinator.gather import then
from broker.handlers._group_answers import reply
from broker.parts import BrokerParts
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from server.network.context import RequestContext
from server.network.deferred import Deferred


def handle(
    broker: BrokerParts, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Deferred:
    answer = broker.groups.delete(list(dict.fromkeys(request.groups_names)))
    response: DeleteGroupsResponse | Deferred = reply(
        then(answer, lambda results: DeleteGroupsResponse(results=results))
    )
    return response
