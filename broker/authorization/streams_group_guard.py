"""Streams groups: READ on the group, and DESCRIBE on each topic of a topology that a member brings or that a description names.

CREATE on internal topics that are missing is asked for when they are found missing (broker/handlers/streams_group_heartbeat.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._group_answers import check_streams_groups
from ottla.broker.handlers.streams_group_heartbeat import check_topic_names, topics_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer
from ottla.server.security.operations import DESCRIBE, GROUP, READ, TOPIC


def guard_heartbeat(
    broker: BrokerComponents, handler: HandlerOf[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]
) -> HandlerOf[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]:
    allows = broker.authorizer.allows

    def heartbeat(
        request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Answer[StreamsGroupHeartbeatResponse]:
        check_streams_groups(broker)
        if not allows(context, READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        check_topic_names(request, broker.internal_topics)
        for name in topics_of(request):
            if not allows(context, DESCRIBE, TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return handler(request, context)

    return heartbeat


def without_hidden_topics(
    broker: BrokerComponents,
    request: StreamsGroupDescribeRequest,
    context: RequestContext,
    answer: StreamsGroupDescribeResponse,
) -> None:
    """A group with a topic that the caller may not know of is answered by an error."""
    authorizer = broker.authorizer
    for index, group in enumerate(answer.groups):
        if any(not authorizer.allows(context, DESCRIBE, TOPIC, topic) for topic in _topics(group)):
            answer.groups[index] = DescribedGroup(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The described group uses topics that the client is not authorized to describe.",
                group.group_id,
            )
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorizer.authorized_operations(context, GROUP, group.group_id)


def _topics(group: DescribedGroup) -> Iterator[str]:
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
