"""ListGroups (16): the groups coordinated here. v4 states and their filter (KIP-518) · v5 types and their filter (KIP-848)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(broker: BrokerComponents, request: ListGroupsRequest, context: RequestContext) -> Answer[ListGroupsResponse]:
    answer = broker.groups.list(request.states_filter, request.types_filter)
    return then(answer, lambda listed: ListGroupsResponse(error_code=listed[0], groups=listed[1]))
