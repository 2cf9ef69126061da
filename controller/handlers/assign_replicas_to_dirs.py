"""AssignReplicasToDirs: a broker says in which directories its replicas are (KIP-858)."""

from __future__ import annotations

from controller.decisions.directories import assign_replicas_to_directories
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import CLUSTER_ACTION


def handle(parts: ControllerParts, request: AssignReplicasToDirsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, CLUSTER_ACTION)
    return parts.controller.write(lambda state: assign_replicas_to_directories(state, request))
