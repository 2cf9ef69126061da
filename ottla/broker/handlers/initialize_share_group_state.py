"""InitializeShareGroupState (83): create the states of share partitions, for the group coordinator (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: InitializeShareGroupStateRequest, context: RequestContext
) -> Answer[InitializeShareGroupStateResponse]:
    check_share_groups(broker)
    return broker.share.coordinator.initialize(request)
