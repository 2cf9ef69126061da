"""DeleteGroups (42): delete groups without members, with their offsets (KIP-229). A group named twice is answered once."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: DeleteGroupsRequest, context: RequestContext
) -> Answer[DeleteGroupsResponse]:
    answer = broker.group_deletion.delete(list(dict.fromkeys(request.groups_names)))
    return then(answer, lambda results: DeleteGroupsResponse(results=results))
