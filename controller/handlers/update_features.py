"""UpdateFeatures: raise or lower finalised feature levels."""

from __future__ import annotations

from controller.control.features import update_features
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.update_features import UpdateFeaturesRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: UpdateFeaturesRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER)
    voters = parts.voters()
    return parts.controller.write(lambda state: update_features(state, request, context.api_version, voters))
