"""DescribeShareGroupOffsets (90): where share groups start in their partitions (KIP-932). v1 adds the lag (KIP-1226).

DESCRIBE on each group, and on each topic inside. A request for all topics gets those that the client may describe.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.api._groups import check_share_groups
from ottla.broker.authorization.checks import split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.server.authorization.operations import DESCRIBE, GROUP, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, gather, then


def handle(
    broker: BrokerComponents, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DescribeShareGroupOffsetsResponse]:
    check_share_groups(broker)
    return gather(
        [_described(broker, context, group) for group in request.groups],
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
    )


def _described(
    broker: BrokerComponents, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> Answer[DescribeShareGroupOffsetsResponseGroup]:
    if not broker.authorizer.allows(context, DESCRIBE, GROUP, group.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=error, error_message=error.message
        )
    allowed = partial(split, broker, context, DESCRIBE, TOPIC, name=lambda topic: topic.topic_name)
    denied: list[DescribeShareGroupOffsetsRequestTopic] = []
    if group.topics is not None:
        group.topics, denied = allowed(group.topics)

    def shape(response: DescribeShareGroupOffsetsResponseGroup) -> DescribeShareGroupOffsetsResponseGroup:
        if not response.error_code:
            response.topics, _ = allowed(response.topics)
            response.topics += [_denied(topic.topic_name, topic.partitions) for topic in denied]
        return response

    return then(broker.share_groups.describe_offsets(group), shape)


def _denied(name: str, partitions: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(index, error_code=error, error_message=error.message)
            for index in partitions
        ],
    )
