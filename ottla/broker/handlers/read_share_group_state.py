"""ReadShareGroupState (84): read the states of share partitions, for their leaders (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: ReadShareGroupStateRequest, context: RequestContext
) -> Answer[ReadShareGroupStateResponse]:
    check_share_groups(broker)
    return broker.share.coordinator.read(request)
