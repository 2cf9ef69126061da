"""Authorization checks of the controller's handlers, and their errors."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, TOPIC
from ottla.server.network.context import RequestContext


def allowed_on_cluster(components: ControllerComponents, context: RequestContext, operation: int) -> bool:
    return components.authorizer.allows(context, operation, CLUSTER, CLUSTER_NAME)


def require_on_cluster(components: ControllerComponents, context: RequestContext, operation: int) -> None:
    if not allowed_on_cluster(components, context, operation):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def allowed_topics(
    components: ControllerComponents, context: RequestContext, operation: int, names: Iterable[str]
) -> frozenset[str]:
    return frozenset(name for name in names if components.authorizer.allows(context, operation, TOPIC, name))
