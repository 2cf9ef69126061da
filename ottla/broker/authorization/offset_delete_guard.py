"""OffsetDelete: DELETE on the group, READ on each topic. The coordinator is asked even if no topic is left."""

from __future__ import annotations

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.server.authorization.operations import DELETE, GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def guard(
    broker: BrokerComponents, handler: HandlerOf[OffsetDeleteRequest, OffsetDeleteResponse]
) -> HandlerOf[OffsetDeleteRequest, OffsetDeleteResponse]:
    allows = broker.authorizer.allows

    def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Answer[OffsetDeleteResponse]:
        if not allows(context, DELETE, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rejected = [
            OffsetDeleteResponseTopic(
                topic.name, [OffsetDeleteResponsePartition(p.partition_index, error) for p in topic.partitions]
            )
            for topic in request.topics
            if not allows(context, READ, TOPIC, topic.name)
        ]
        request.topics = [topic for topic in request.topics if allows(context, READ, TOPIC, topic.name)]

        def merge(answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if not answer.error_code:
                answer.topics = [*answer.topics, *rejected]
            return answer

        return then(handler(request, context), merge)

    return offset_delete
