"""The action that a request, or one element of it, requires: an operation on a resource. The rows of broker/routes.py use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.components import BrokerComponents
from ottla.broker.topic_names import is_valid_topic_name
from ottla.controller.metadata.describe_configs import guard_of
from ottla.server.authorization.operations import (
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
)


class Action(NamedTuple):
    operation: int
    resource_type: int
    name: str


#: Called with the request and, in a rule for elements, one of them. With None no authorization is needed, and the handler responds.
ActionOf = Callable[[BrokerComponents, Any, Any], Action | None]


def on_cluster(operation: int) -> ActionOf:
    action = Action(operation, CLUSTER, CLUSTER_NAME)
    return lambda broker, request, element: action


def on_group(operation: int) -> ActionOf:
    """Return the group of a request that names one."""
    return lambda broker, request, element: Action(operation, GROUP, request.group_id)


def on_each_group(operation: int) -> ActionOf:
    """Elements that are group ids."""
    return lambda broker, request, element: Action(operation, GROUP, element)


def on_transactional_id(operation: int) -> ActionOf:
    """Return the transactional id of a request that names one."""
    return lambda broker, request, element: Action(operation, TRANSACTIONAL_ID, request.transactional_id)


def on_each_transactional_id(operation: int) -> ActionOf:
    """Elements that are transactional ids."""
    return lambda broker, request, element: Action(operation, TRANSACTIONAL_ID, element)


def on_topic(operation: int, field: str = "name") -> ActionOf:
    """Return the topic that an element names."""
    return lambda broker, request, element: Action(operation, TOPIC, getattr(element, field))


def on_topic_or_id(operation: int) -> ActionOf:
    """Return the topic of an element by its name or, in later versions, its id. The handler rejects unknown ids."""

    def action(broker: BrokerComponents, request: object, element: Any) -> Action | None:
        name = element.name or broker.metadata.topic_name(element.topic_id)
        return Action(operation, TOPIC, name) if name else None

    return action


def read_valid_topic(broker: BrokerComponents, request: object, topic: Any) -> Action | None:
    """DescribeProducers reports an invalid name before it checks permissions."""
    return Action(READ, TOPIC, topic.name) if is_valid_topic_name(topic.name) else None


def sync_with_protocol(broker: BrokerComponents, request: Any, element: object) -> Action | None:
    """SyncGroup reports a missing protocol before it checks permissions; the field is mandatory from v5 on (KIP-559)."""
    if request.protocol_type is None or request.protocol_name is None:
        return None
    return Action(READ, GROUP, request.group_id)


def describe_config_resource(broker: BrokerComponents, request: object, resource: Any) -> Action | None:
    guard = guard_of(resource)
    return None if guard is None else Action(DESCRIBE_CONFIGS, *guard)
