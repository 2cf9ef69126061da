"""Where share groups start in their partitions (KIP-932): described, set and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.api.groups import check_share_groups
from ottla.broker.authorization import require, split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.server.authorization.operations import DELETE, DESCRIBE, GROUP, READ, TOPIC
from ottla.server.network.context import Answer, RequestContext, gather, then


def describe_share_group_offsets(
    broker: BrokerComponents, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DescribeShareGroupOffsetsResponse]:
    """DescribeShareGroupOffsets (90): where share groups start in their partitions (KIP-932). v1 adds the lag (KIP-1226).

    DESCRIBE on each group, and on each topic inside. A request for all topics gets those that the client may describe.
    """
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


def alter_share_group_offsets(
    broker: BrokerComponents, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> Answer[AlterShareGroupOffsetsResponse]:
    """AlterShareGroupOffsets (91): set where an empty share group starts (KIP-932). READ on the group, and on each topic."""
    return _change(broker, context, READ, request, broker.share_groups.alter_offsets, _not_altered)


def _not_altered(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [
        AlterShareGroupOffsetsResponsePartition(row.partition_index, error, error.message) for row in topic.partitions
    ]
    return AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=rows)


def delete_share_group_offsets(
    broker: BrokerComponents, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DeleteShareGroupOffsetsResponse]:
    """DeleteShareGroupOffsets (92): forget an empty share group's offsets of topics (KIP-932). DELETE on the group, READ on each topic."""
    return _change(broker, context, DELETE, request, broker.share_groups.delete_offsets, _not_deleted)


def _not_deleted(topic: DeleteShareGroupOffsetsRequestTopic) -> DeleteShareGroupOffsetsResponseTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, error_code=error, error_message=error.message
    )


def _change(
    broker: BrokerComponents,
    context: RequestContext,
    on_group: int,
    request: Any,
    change: Callable[[Any], Answer[Any]],
    refused: Callable[[Any], object],
) -> Answer[Any]:
    """Change the offsets of the topics that the client may READ, if it may do `on_group` to the group; the others are `refused`."""
    require(broker, context, on_group, GROUP, request.group_id)
    check_share_groups(broker)
    request.topics, denied = split(broker, context, READ, TOPIC, request.topics, lambda topic: topic.topic_name)

    def shape(response: Any) -> Any:
        if not response.error_code:
            response.responses = [*response.responses, *map(refused, denied)]
        return response

    return then(change(request), shape)
