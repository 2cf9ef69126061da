"""BrokerHeartbeat: a broker keeps its session, and requests to be fenced, unfenced or shut down.

The connection of the heartbeats is watched: when it breaks, the broker has a short grace period before it is fenced.
"""

from __future__ import annotations

from ottla.controller.decisions.broker_heartbeat import process_heartbeat
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.server.authorization.operations import CLUSTER_ACTION
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: BrokerHeartbeatRequest, context: RequestContext
) -> Reply[BrokerHeartbeatResponse]:
    components.require_on_cluster(context, CLUSTER_ACTION)
    controller = components.controller

    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[BrokerHeartbeatResponse | None]:
        now_ms, log_end = controller.clock.mono_ms(), controller.next_offset
        outcome = process_heartbeat(
            state, controller.heartbeats, request, log_end=log_end, now_ms=now_ms, leaving=leaving
        )
        if outcome.records and outcome.response is not None:
            components.scheduled_tasks.broker_changed(request.broker_id)
        return outcome

    answer = controller.write_in_turns(decide)
    _watch(components, request.broker_id, context)
    components.scheduled_tasks.check_sessions()
    return answer


def _watch(components: ControllerComponents, broker_id: int, context: RequestContext) -> None:
    """Watches the broker's newest connection. An old one may have been cut: what was sent on it comes late, and then its close."""
    connection = context.connection
    newest = components.heartbeat_connections.get(broker_id)
    if newest is not None and newest.opened_ns >= connection.opened_ns:
        return
    components.heartbeat_connections[broker_id] = connection

    def closed() -> None:
        if components.heartbeat_connections.get(broker_id) is connection:
            del components.heartbeat_connections[broker_id]
            components.scheduled_tasks.connection_lost(broker_id)

    connection.on_close(closed)
