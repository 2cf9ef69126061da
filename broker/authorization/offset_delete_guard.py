"""OffsetDelete: DELETE on the group, READ on each topic. The coordinator has its say even if no topic is left."""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.guard import Handler, then
from ottla.broker.parts import BrokerParts
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.server.network.context import RequestContext
from ottla.server.security.operations import DELETE, GROUP, READ, TOPIC


def guard(broker: BrokerParts, handler: Handler) -> Handler:
    allows = broker.authorizer.allows

    def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Any:
        if not allows(context, DELETE, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused = [
            OffsetDeleteResponseTopic(
                topic.name, [OffsetDeleteResponsePartition(p.partition_index, error) for p in topic.partitions]
            )
            for topic in request.topics
            if not allows(context, READ, TOPIC, topic.name)
        ]
        request.topics = [topic for topic in request.topics if allows(context, READ, TOPIC, topic.name)]

        def merge(answer: Any) -> Any:
            if not isinstance(answer, KafkaError) and not answer.error_code:
                answer.topics = [*answer.topics, *refused]
            return answer

        return then(handler(request, context), merge)

    return offset_delete
