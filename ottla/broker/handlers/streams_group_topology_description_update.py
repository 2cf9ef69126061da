"""StreamsGroupTopologyDescriptionUpdate (93): a member describes its topology for a plug-in of Java (KIP-1331), which a node here cannot have.

Members send it only when a response to StreamsGroupHeartbeat asks for it, which no node here does.
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ottla.server.network.context import RequestContext

NO_PLUGIN = "The broker has no streams group topology description plugin configured."


def handle(
    broker: BrokerComponents, request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_PLUGIN
    )
