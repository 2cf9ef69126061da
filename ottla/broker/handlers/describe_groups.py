"""DescribeGroups (15): state and members of classic groups.

v3 authorized operations (KIP-430) · v4 instance ids · v6 unknown groups get GROUP_ID_NOT_FOUND (KIP-1043), before: state Dead.
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers.authorized_operations import GROUP_OPERATIONS
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

ERROR_SINCE = 6


def handle(
    broker: BrokerComponents, request: DescribeGroupsRequest, context: RequestContext
) -> Answer[DescribeGroupsResponse]:
    def shape(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    answer = broker.groups.describe(request.groups, context.api_version >= ERROR_SINCE)
    return then(answer, shape)
