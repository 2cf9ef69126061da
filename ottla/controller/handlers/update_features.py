"""UpdateFeatures: raise or lower finalised feature levels."""

from __future__ import annotations

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.eligible import after_elrs
from ottla.controller.decisions.features import QuorumFeatures, raised_kraft_version, response_to, update_features
from ottla.controller.decisions.outcome import Outcome, in_turns
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: UpdateFeaturesRequest, context: RequestContext
) -> Reply[UpdateFeaturesResponse]:
    components.require_on_cluster(context, ALTER)
    quorum = QuorumFeatures(components.quorum.voter_ids, components.quorum.kraft_version)

    def decide(state: ControlState) -> Outcome[UpdateFeaturesResponse]:
        outcome = update_features(state, request, context.api_version, quorum)
        level = raised_kraft_version(request, quorum)
        if level is not None and not outcome.response.error_code:
            # It is raised last, when no other check can fail: its records are the quorum's and could not be left out of the batch.
            try:
                components.quorum.raise_kraft_version(level, dry_run=request.validate_only)
            except KafkaError as error:
                return Outcome([], response_to(request, context.api_version, error))
        return outcome

    return components.controller.write_in_turns(in_turns(lambda state: after_elrs(state, decide)))
