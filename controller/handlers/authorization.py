"""Authorization checks of the controller's handlers, and their errors."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.handlers.parts import ControllerParts
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import RequestContext
from ottla.server.security.operations import CLUSTER, CLUSTER_NAME, TOPIC


def allowed_on_cluster(parts: ControllerParts, context: RequestContext, operation: int) -> bool:
    return parts.authorizer.allows(context, operation, CLUSTER, CLUSTER_NAME)


def require_on_cluster(parts: ControllerParts, context: RequestContext, operation: int) -> None:
    if not allowed_on_cluster(parts, context, operation):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def allowed_topics(
    parts: ControllerParts, context: RequestContext, operation: int, names: Iterable[str]
) -> frozenset[str]:
    return frozenset(name for name in names if parts.authorizer.allows(context, operation, TOPIC, name))
