"""ConsumerGroupDescribe (69): epochs, members and assignments of consumer groups (KIP-848). v1 types of members (KIP-1099)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._group_answers import check_consumer_groups
from ottla.broker.handlers.authorized_operations import GROUP_OPERATIONS
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Answer[ConsumerGroupDescribeResponse]:
    check_consumer_groups(broker)

    def shape(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    return then(broker.groups.describe_consumer_groups(request.group_ids), shape)
