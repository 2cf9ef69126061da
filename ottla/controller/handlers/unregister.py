"""UnregisterBroker: forget a broker that will not come back, in as many turns as its partitions take. UnregisterController: forget
a controller that will not come back (KIP-1312).
"""

from __future__ import annotations

from ottla.controller.decisions.brokers import unregister_broker, unregister_controller
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle_broker(
    components: ControllerComponents, request: UnregisterBrokerRequest, context: RequestContext
) -> Reply[UnregisterBrokerResponse]:
    components.require_on_cluster(context, ALTER)
    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[UnregisterBrokerResponse | None]:
        try:
            return unregister_broker(state, request, leaving)
        except KafkaError:
            # Earlier turns may have fenced the broker: the scheduled tasks decide about the rest of its partitions.
            components.scheduled_tasks.broker_changed(request.broker_id)
            raise

    return components.controller.write_in_turns(decide)


def handle_controller(
    components: ControllerComponents, request: UnregisterControllerRequest, context: RequestContext
) -> Reply[UnregisterControllerResponse]:
    components.require_on_cluster(context, ALTER)
    voters = components.quorum.voter_ids
    response = UnregisterControllerResponse(error_message=None)
    return components.controller.write(
        lambda state: Outcome(unregister_controller(state, request.controller_id, voters).records, response)
    )
