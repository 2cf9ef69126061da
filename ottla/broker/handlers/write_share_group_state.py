"""WriteShareGroupState (85): update the states of share partitions, for their leaders (KIP-932). v1 adds the number of finished deliveries (KIP-1226)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: WriteShareGroupStateRequest, context: RequestContext
) -> Answer[WriteShareGroupStateResponse]:
    check_share_groups(broker)
    return broker.share.coordinator.write(request)
