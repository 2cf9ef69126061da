"""ListPartitionReassignments: the moves under way (KIP-455)."""

from __future__ import annotations

from controller.decisions.outcome import Outcome
from controller.decisions.reassignment import list_partition_reassignments
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import DESCRIBE


def handle(parts: ControllerParts, request: ListPartitionReassignmentsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, DESCRIBE)
    return parts.controller.write(lambda state: Outcome([], list_partition_reassignments(state, request)))
