"""ShareGroupHeartbeat (76): members of share groups join, live and leave (KIP-932)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._group_answers import client_of
from ottla.broker.handlers._share_groups import check_share_groups
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Answer[ShareGroupHeartbeatResponse]:
    check_share_groups(broker)
    return broker.share_groups.heartbeat(request, client_of(broker, context))
