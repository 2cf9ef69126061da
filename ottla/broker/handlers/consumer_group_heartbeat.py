"""ConsumerGroupHeartbeat (68): members of consumer groups join, live, reconcile and leave (KIP-848).

v1 regular expressions, and member ids made by clients (KIP-1082).
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.handlers._group_answers import check_consumer_groups, client_of
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(
    broker: BrokerComponents, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Answer[ConsumerGroupHeartbeatResponse]:
    check_consumer_groups(broker)
    return broker.groups.consumer_heartbeat(request, client_of(broker, context))
