"""ConsumerGroupDescribe (69): epochs, members and assignments of consumer groups (KIP-848). v1 types of members (KIP-1099)."""

from __future__ import annotations

from ottla.broker.api._groups import add_authorized_operations, check_consumer_groups, without_hidden_topics
from ottla.broker.components import BrokerComponents
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
        shown = without_hidden_topics(broker, context, groups, _topics, DescribedGroup)
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, shown)
        return ConsumerGroupDescribeResponse(groups=shown)

    return then(broker.groups.describe_consumer_groups(request.group_ids), shape)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
