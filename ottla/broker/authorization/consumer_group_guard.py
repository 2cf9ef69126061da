"""Consumer groups: the topics that a member is subscribed to by name, and those that a description names."""

from __future__ import annotations

from ottla.broker.authorization.group_topics import guard_member, hiding
from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.consumer_group_describe import Assignment, DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def guard_heartbeat(
    broker: BrokerComponents, handler: HandlerOf[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]
) -> HandlerOf[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]:
    return guard_member(broker, handler, lambda request: request.subscribed_topic_names or ())


def _topics(group: DescribedGroup) -> set[str]:
    def names(assignment: Assignment) -> set[str]:
        return {topic.topic_name for topic in assignment.topic_partitions}

    return {name for member in group.members for name in names(member.assignment) | names(member.target_assignment)}


without_hidden_topics = hiding(DescribedGroup, _topics)
