"""ShareGroupDescribe (77): epochs, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.broker.handlers.authorized_operations import GROUP_OPERATIONS
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: ShareGroupDescribeRequest, context: RequestContext
) -> Answer[ShareGroupDescribeResponse]:
    check_share_groups(broker)

    def shape(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=groups)

    return then(broker.share_groups.describe(request.group_ids), shape)
