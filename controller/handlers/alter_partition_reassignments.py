"""AlterPartitionReassignments: begin or cancel moving partitions (KIP-455)."""

from __future__ import annotations

from controller.decisions.reassignment import alter_partition_reassignments
from controller.handlers.authorization import require_on_cluster
from controller.handlers.deadlines import refuse_timed_out
from controller.handlers.parts import ControllerParts
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: AlterPartitionReassignmentsRequest, context: RequestContext) -> Deferred:
    refuse_timed_out(request.timeout_ms)
    require_on_cluster(parts, context, ALTER)
    return parts.controller.write(lambda state: alter_partition_reassignments(state, request))
