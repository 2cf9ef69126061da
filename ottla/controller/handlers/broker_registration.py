"""BrokerRegistration: a broker registers, and is fenced at first (KIP-631)."""

from __future__ import annotations

from ottla.controller.decisions.brokers import register_broker
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.server.authorization.operations import CLUSTER_ACTION
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: BrokerRegistrationRequest, context: RequestContext
) -> Reply[BrokerRegistrationResponse]:
    components.require_on_cluster(context, CLUSTER_ACTION)
    controller = components.controller

    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[BrokerRegistrationResponse | None]:
        has_session = controller.heartbeats.has_session(request.broker_id, controller.clock.mono_ms())
        try:
            records, epoch = register_broker(
                state, request, controller.next_offset, has_session=has_session, leaving=leaving
            )
        except KafkaError:
            # Where the first turns have fenced the former incarnation, what they left is decided as for any fenced broker.
            components.scheduled_tasks.broker_changed(request.broker_id)
            raise
        return Outcome(records, None if epoch is None else BrokerRegistrationResponse(broker_epoch=epoch))

    return controller.write_in_turns(decide)
