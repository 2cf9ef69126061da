"""AlterPartition: a leader changes its ISR."""

from __future__ import annotations

from controller.decisions.alter_partition import alter_partition
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.alter_partition import AlterPartitionRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import CLUSTER_ACTION


def handle(parts: ControllerParts, request: AlterPartitionRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, CLUSTER_ACTION)
    return parts.controller.write(lambda state: alter_partition(state, request, context.api_version))
