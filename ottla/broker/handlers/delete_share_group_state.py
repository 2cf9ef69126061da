"""DeleteShareGroupState (86): forget the states of share partitions, for the group coordinator (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: DeleteShareGroupStateRequest, context: RequestContext
) -> Answer[DeleteShareGroupStateResponse]:
    check_share_groups(broker)
    return broker.share.coordinator.delete(request)
