"""Heartbeat (12): a member of a classic group lives. v3 group_instance_id (KIP-345)."""

from __future__ import annotations

from ottla.broker.handlers._group_answers import reply
from ottla.broker.parts import BrokerParts
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.deferred import Deferred


def handle(broker: BrokerParts, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse | Deferred:
    answer: HeartbeatResponse | Deferred = reply(broker.groups.heartbeat(request))
    return answer
