"""ListGroups (16): the groups coordinated here. v4 states and their filter (KIP-518) · v5 types and their filter (KIP-848).

A client with DESCRIBE on the cluster sees all groups, any other those that it may DESCRIBE.
"""

from __future__ import annotations

from ottla.broker.authorization.checks import split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, DESCRIBE, GROUP
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(broker: BrokerComponents, request: ListGroupsRequest, context: RequestContext) -> Answer[ListGroupsResponse]:
    def shape(listed: tuple[ErrorCode, list[ListedGroup]]) -> ListGroupsResponse:
        error, groups = listed
        if not broker.authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
            groups, _ = split(broker, context, DESCRIBE, GROUP, groups, lambda group: group.group_id)
        return ListGroupsResponse(error_code=error, groups=groups)

    return then(broker.groups.list(request.states_filter, request.types_filter), shape)
