"""DescribeTopicPartitions: DESCRIBE on each topic; a request for all topics gets those that its principal may describe."""

from __future__ import annotations

from ottla.broker.authorization.guard import Handler
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.server.authorization.operations import DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext


def guard(broker: BrokerComponents, handler: Handler) -> Handler:
    authorizer = broker.authorizer

    def describe_topic_partitions(
        request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        asked = sorted({topic.name for topic in request.topics})
        names = asked or sorted(broker.metadata.image.topics.names)
        allowed = [name for name in names if authorizer.allows(context, DESCRIBE, TOPIC, name)]
        request.topics = [TopicRequest(name=name) for name in allowed]
        # An empty list would ask for all topics.
        answer = handler(request, context) if allowed else DescribeTopicPartitionsResponse()
        for topic in answer.topics:
            assert topic.name is not None
            topic.topic_authorized_operations = authorizer.authorized_operations(context, TOPIC, topic.name)
        first = request.cursor.topic_name if request.cursor is not None else ""
        answer.topics += [
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            for name in asked
            if name not in allowed and name >= first
        ]
        return answer

    return describe_topic_partitions
