"""UnregisterBroker: forget a broker that will not come back, in as many turns as its partitions take."""

from __future__ import annotations

from ottla.controller.decisions.brokers import unregister_broker
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.state import ControlState
from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: UnregisterBrokerRequest, context: RequestContext
) -> Reply[UnregisterBrokerResponse]:
    require_on_cluster(components, context, ALTER)
    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[UnregisterBrokerResponse | None]:
        try:
            return unregister_broker(state, request, leaving)
        except KafkaError:
            # Earlier turns may have fenced the broker: the scheduled tasks decide about the rest of its partitions.
            components.scheduled_tasks.broker_changed(request.broker_id)
            raise

    return components.controller.write_in_turns(decide)
