"""StreamsGroupDescribe (89): epochs, topology, members and tasks of streams groups (KIP-1071).

v1 the assignor's name, and descriptions of topologies (KIP-1331), which are not stored here: the response says so.
"""

from __future__ import annotations

from ottla.broker.api._groups import check_streams_groups, describe_modern_groups
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_descriptions import STREAMS_GROUPS
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

#: Of the field topology_description_status.
NOT_STORED = 1


def handle(
    broker: BrokerComponents, request: StreamsGroupDescribeRequest, context: RequestContext
) -> Answer[StreamsGroupDescribeResponse]:
    check_streams_groups(broker)

    def shape(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
        if request.include_topology_description:
            for group in groups:
                if not group.error_code:
                    group.topology_description_status = NOT_STORED
        return StreamsGroupDescribeResponse(groups=groups)

    return then(describe_modern_groups(broker, context, request, STREAMS_GROUPS), shape)
