"""ShareGroupDescribe (77): epochs, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from ottla.broker.api._groups import check_share_groups, describe_modern_groups
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.describe import SHARE_GROUPS
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
    described = describe_modern_groups(broker, context, request, SHARE_GROUPS, _topics)
    return then(described, lambda groups: ShareGroupDescribeResponse(groups=groups))


def _topics(group: DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
