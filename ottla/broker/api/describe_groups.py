"""DescribeGroups (15): state and members of classic groups.

v3 authorized operations (KIP-430) · v4 instance ids · v6 unknown groups get GROUP_ID_NOT_FOUND (KIP-1043), before: state Dead.
"""

from __future__ import annotations

from ottla.broker.api._groups import add_authorized_operations
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

ERROR_SINCE = 6


def handle(
    broker: BrokerComponents, request: DescribeGroupsRequest, context: RequestContext
) -> Answer[DescribeGroupsResponse]:
    def shape(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, groups)
        return DescribeGroupsResponse(groups=groups)

    return then(broker.groups.describe(request.groups, context.api_version >= ERROR_SINCE), shape)
