"""AlterShareGroupOffsets (91): set where an empty share group starts (KIP-932). READ on the group, and on each topic."""

from __future__ import annotations

from ottla.broker.api._groups import check_share_groups
from ottla.broker.authorization.checks import require, split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.server.authorization.operations import GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> Answer[AlterShareGroupOffsetsResponse]:
    require(broker, context, READ, GROUP, request.group_id)
    check_share_groups(broker)
    request.topics, denied = split(broker, context, READ, TOPIC, request.topics, lambda topic: topic.topic_name)

    def shape(response: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = [*response.responses, *map(_denied, denied)]
        return response

    return then(broker.share_groups.alter_offsets(request), shape)


def _denied(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(row.partition_index, error, error.message)
            for row in topic.partitions
        ],
    )
