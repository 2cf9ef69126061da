"""ShareGroupDescribe (77): epochs, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from ottla.broker.api._groups import add_authorized_operations, check_share_groups, without_hidden_topics
from ottla.broker.components import BrokerComponents
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
        shown = without_hidden_topics(broker, context, groups, _topics, DescribedGroup)
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, shown)
        return ShareGroupDescribeResponse(groups=shown)

    return then(broker.share_groups.describe(request.group_ids), shape)


def _topics(group: DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
