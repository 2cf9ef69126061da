"""Heartbeat (12): a member of a classic group keeps its session. v3 group_instance_id (KIP-345)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(broker: BrokerComponents, request: HeartbeatRequest, context: RequestContext) -> Answer[HeartbeatResponse]:
    return broker.groups.heartbeat(request)
