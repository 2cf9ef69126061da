"""Consumer groups: READ on the group, and DESCRIBE on each topic that a member is subscribed to or that a description names."""

from __future__ import annotations

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer
from ottla.server.security.operations import DESCRIBE, GROUP, READ, TOPIC


def guard_heartbeat(
    broker: BrokerComponents, handler: HandlerOf[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]
) -> HandlerOf[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]:
    allows = broker.authorizer.allows

    def heartbeat(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> Answer[ConsumerGroupHeartbeatResponse]:
        if not allows(context, READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for name in request.subscribed_topic_names or ():
            if not allows(context, DESCRIBE, TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return handler(request, context)

    return heartbeat


def without_hidden_topics(
    broker: BrokerComponents,
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
    answer: ConsumerGroupDescribeResponse,
) -> None:
    """A group with a topic that the caller may not know of is answered by an error."""
    authorizer = broker.authorizer
    for index, group in enumerate(answer.groups):
        if any(not authorizer.allows(context, DESCRIBE, TOPIC, topic) for topic in _topics(group)):
            answer.groups[index] = DescribedGroup(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
                group.group_id,
            )
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorizer.authorized_operations(context, GROUP, group.group_id)


def _topics(group: DescribedGroup) -> set[str]:
    def names(assignment: Assignment) -> set[str]:
        return {topic.topic_name for topic in assignment.topic_partitions}

    return {name for member in group.members for name in names(member.assignment) | names(member.target_assignment)}
