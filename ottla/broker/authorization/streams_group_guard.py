"""Streams groups: READ on the group, and DESCRIBE on each topic of a topology that a member brings or that a description names.

CREATE on internal topics that are missing is asked for when they are found missing (broker/handlers/streams_group_heartbeat.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ottla.broker.authorization.group_topics import guard_member, hiding
from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._group_answers import check_streams_groups
from ottla.broker.handlers.streams_group_heartbeat import check_topic_names, topics_of
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
)
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def guard_heartbeat(
    broker: BrokerComponents, handler: HandlerOf[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]
) -> HandlerOf[StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse]:
    def topics(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
        check_topic_names(request, broker.internal_topics)
        return topics_of(request)

    return guard_member(broker, handler, topics, partial(check_streams_groups, broker))


def _topics(group: DescribedGroup) -> Iterator[str]:
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


without_hidden_topics = hiding(
    DescribedGroup, _topics, "The described group uses topics that the client is not authorized to describe."
)
