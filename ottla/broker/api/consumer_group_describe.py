"""ConsumerGroupDescribe (69): epochs, members and assignments of consumer groups (KIP-848). v1 types of members (KIP-1099)."""

from __future__ import annotations

from ottla.broker.api._groups import check_consumer_groups, describe_modern_groups
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.describe import CONSUMER_GROUPS
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
    described = describe_modern_groups(broker, context, request, CONSUMER_GROUPS, _topics)
    return then(described, lambda groups: ConsumerGroupDescribeResponse(groups=groups))


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
