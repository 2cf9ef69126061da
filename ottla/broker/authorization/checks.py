"""Checks of a handler that asks the authorizer itself: about one resource, or about a list of which some may be denied.

allowed, denied = split(broker, context, READ, TOPIC, request.topics, lambda topic: topic.name)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import KafkaError
from ottla.server.authorization.operations import AUTHORIZATION_ERRORS, CLUSTER, CLUSTER_NAME, DESCRIBE
from ottla.server.network.context import RequestContext

T = TypeVar("T")


def require(broker: BrokerComponents, context: RequestContext, operation: int, resource_type: int, name: str) -> None:
    """Raises the resource type's authorization error unless the client may do it."""
    if not broker.authorizer.allows(context, operation, resource_type, name):
        raise KafkaError(AUTHORIZATION_ERRORS[resource_type])


def split(
    broker: BrokerComponents,
    context: RequestContext,
    operation: int,
    resource_type: int,
    elements: Iterable[T],
    name: Callable[[T], str],
) -> tuple[list[T], list[T]]:
    """Returns the elements whose resource is allowed, and the others: Kafka's partitionSeqByAuthorized."""
    if not broker.authorizer.enabled:
        return list(elements), []
    allowed: list[T] = []
    denied: list[T] = []
    for element in elements:
        is_allowed = broker.authorizer.allows(context, operation, resource_type, name(element))
        (allowed if is_allowed else denied).append(element)
    return allowed, denied


def operations_on_cluster(broker: BrokerComponents, context: RequestContext) -> int:
    """Returns the bit field of KIP-430, which has no bit for a client that may not describe the cluster."""
    if not broker.authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
        return 0
    return broker.authorizer.authorized_operations(context, CLUSTER, CLUSTER_NAME)
