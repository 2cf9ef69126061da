"""StreamsGroupDescribe (89): epochs, topology, members and tasks of streams groups (KIP-1071).

v1 the assignor's name, and descriptions of topologies (KIP-1331), which are not stored here: the response says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.api._groups import add_authorized_operations, check_streams_groups, without_hidden_topics
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

#: Of the field topology_description_status.
NOT_STORED = 1
HIDDEN = "The described group uses topics that the client is not authorized to describe."


def handle(
    broker: BrokerComponents, request: StreamsGroupDescribeRequest, context: RequestContext
) -> Answer[StreamsGroupDescribeResponse]:
    check_streams_groups(broker)

    def shape(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
        shown = without_hidden_topics(broker, context, groups, _topics, DescribedGroup, HIDDEN)
        if request.include_authorized_operations:
            add_authorized_operations(broker, context, shown)
        if request.include_topology_description:
            for group in shown:
                if not group.error_code:
                    group.topology_description_status = NOT_STORED
        return StreamsGroupDescribeResponse(groups=shown)

    return then(broker.groups.describe_streams_groups(request.group_ids), shape)


def _topics(group: DescribedGroup) -> Iterator[str]:
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
