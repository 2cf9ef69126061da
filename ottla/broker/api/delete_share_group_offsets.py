"""DeleteShareGroupOffsets (92): forget an empty share group's offsets of topics (KIP-932). DELETE on the group, READ on each topic."""

from __future__ import annotations

from ottla.broker.api._groups import check_share_groups
from ottla.broker.authorization.checks import require, split
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.server.authorization.operations import DELETE, GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(
    broker: BrokerComponents, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> Answer[DeleteShareGroupOffsetsResponse]:
    require(broker, context, DELETE, GROUP, request.group_id)
    check_share_groups(broker)
    request.topics, denied = split(broker, context, READ, TOPIC, request.topics, lambda topic: topic.topic_name)

    def shape(response: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
        if not response.error_code:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.responses = [
                *response.responses,
                *(
                    DeleteShareGroupOffsetsResponseTopic(
                        topic_name=topic.topic_name, error_code=error, error_message=error.message
                    )
                    for topic in denied
                ),
            ]
        return response

    return then(broker.share_groups.delete_offsets(request), shape)
