"""AllocateProducerIds: a broker gets a block of producer ids."""

from __future__ import annotations

from controller.decisions.producer_ids import allocate_producer_ids
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import CLUSTER_ACTION


def handle(parts: ControllerParts, request: AllocateProducerIdsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, CLUSTER_ACTION)
    return parts.controller.write(lambda state: allocate_producer_ids(state, request))
