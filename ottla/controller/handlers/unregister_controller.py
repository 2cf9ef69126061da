"""UnregisterController: forget a controller that will not come back (KIP-1312)."""

from __future__ import annotations

from ottla.controller.decisions.brokers import unregister_controller
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: UnregisterControllerRequest, context: RequestContext
) -> Reply[UnregisterControllerResponse]:
    require_on_cluster(components, context, ALTER)
    voters = components.quorum.voter_ids
    response = UnregisterControllerResponse(error_message=None)
    return components.controller.write(
        lambda state: Outcome(unregister_controller(state, request.controller_id, voters).records, response)
    )
