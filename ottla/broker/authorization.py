"""Authorization of requests: the rows of routes.py say what an API requires, or its handler asks by `require` and `split`.

Guards run before handlers: unauthorized requests or elements get the API's own error, and the handler sees only the rest.

    Whole      one resource, one response: a request that is not allowed never reaches the handler
    Every      a list of topics, one response: the request is rejected if one of them is not allowed
    Each       a list of resources: the handler gets a request without those not allowed, whose errors are added to the response
    InHandler  the handler asks the authorizer itself: about lists in lists, or about what its response shows

A node without an authorizer has no guards at all: `guarded` then returns the handler, and nothing is paid per request.
Rejections are made by server/network/error_reply.py, so that they look exactly like the API's other errors.
A rule names actions, an operation on a resource of the request or of one element of it: the functions at the end make them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.describe_configs import guard_of
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.schema import Versions, parse_versions
from ottla.server.authorization.operations import (
    AUTHORIZATION_ERRORS,
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
)
from ottla.server.network.context import RequestContext, then
from ottla.server.network.error_reply import error_reply

T = TypeVar("T")
RequestT = TypeVar("RequestT")
Handler = Callable[[Any, RequestContext], Any]
ALL_VERSIONS = parse_versions("0+")


def require(broker: BrokerComponents, context: RequestContext, operation: int, resource_type: int, name: str) -> None:
    """Raise the resource type's authorization error unless the client may do it."""
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
    """Return the elements whose resource is allowed, and the others: Kafka's partitionSeqByAuthorized."""
    if not broker.authorizer.enabled:
        return list(elements), []
    allowed: list[T] = []
    denied: list[T] = []
    for element in elements:
        is_allowed = broker.authorizer.allows(context, operation, resource_type, name(element))
        (allowed if is_allowed else denied).append(element)
    return allowed, denied


def operations_on_cluster(broker: BrokerComponents, context: RequestContext) -> int:
    """Return the bit field of KIP-430, which has no bit for a client that may not describe the cluster."""
    if not broker.authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME):
        return 0
    return broker.authorizer.authorized_operations(context, CLUSTER, CLUSTER_NAME)


class Action(NamedTuple):
    operation: int
    resource_type: int
    name: str


#: Called with the request and, in a rule for elements, one of them. With None no authorization is needed, and the handler responds.
ActionOf = Callable[[BrokerComponents, Any, Any], Action | None]


class Rule(Protocol):
    """A rule: the operation on a resource that a client has to be allowed."""

    def guard(self, broker: BrokerComponents, api_key: int, handler: Handler) -> Handler:
        """Return a handler that checks the request, and calls `handler`."""


class Whole(NamedTuple):
    """Rule for a request as a whole: any one of `actions` is enough. Of several rows each has to be satisfied."""

    actions: tuple[ActionOf, ...]
    versions: Versions = ALL_VERSIONS

    def guard(self, broker: BrokerComponents, api_key: int, handler: Handler) -> Handler:
        def whole(request: object, context: RequestContext) -> Any:
            if context.api_version in self.versions:
                actions = [action(broker, request, None) for action in self.actions]
                # If no resource is allowed, the type of the last one decides the error code.
                if actions[-1] is not None and not any(_allows(broker, context, action) for action in actions):
                    raise KafkaError(AUTHORIZATION_ERRORS[actions[-1].resource_type])
            return handler(request, context)

        return whole


class Every(NamedTuple):
    """Rule for an API whose request lists topics: `operation` on each topic that `source` names. The list may be null."""

    source: str
    operation: int

    def guard(self, broker: BrokerComponents, api_key: int, handler: Handler) -> Handler:
        def every(request: object, context: RequestContext) -> Any:
            for name in getattr(request, self.source) or ():
                require(broker, context, self.operation, TOPIC, name)
            return handler(request, context)

        return every


class Each(NamedTuple):
    """Rule for an API whose request lists resources: `source` names them in the request, `target` their rows in the response."""

    source: str
    target: str
    action: ActionOf
    #: True if the response has an error message besides the code.
    has_message: bool = False
    #: If this resource is allowed, the elements are not checked one by one.
    unless: ActionOf | None = None
    versions: Versions = ALL_VERSIONS

    def guard(self, broker: BrokerComponents, api_key: int, handler: Handler) -> Handler:
        def each(request: Any, context: RequestContext) -> Any:
            if context.api_version not in self.versions:
                return handler(request, context)
            if self.unless is not None and _allows(broker, context, self.unless(broker, request, None)):
                return handler(request, context)
            allowed = []
            denied: dict[ErrorCode, list[object]] = {}
            for element in getattr(request, self.source):
                action = self.action(broker, request, element)
                if action is None or _allows(broker, context, action):
                    allowed.append(element)
                else:
                    denied.setdefault(AUTHORIZATION_ERRORS[action.resource_type], []).append(element)
            if not denied:
                return handler(request, context)
            rejections = [
                self._rejection(api_key, context, self._only(request, elements), code)
                for code, elements in denied.items()
            ]
            if not allowed:
                return self._merge(rejections[1:], rejections[0])
            return then(handler(self._only(request, allowed), context), partial(self._merge, rejections))

        return each

    def _only(self, request: RequestT, elements: list[Any]) -> RequestT:
        """Return the request for some of its elements."""
        only = copy.copy(request)
        setattr(only, self.source, elements)
        return only

    def _rejection(self, api_key: int, context: RequestContext, request: object, code: ErrorCode) -> Any:
        rejection = error_reply(api_key, context.api_version, request, KafkaError(code))
        if self.has_message:
            for answer in getattr(rejection, self.target):
                answer.error_message = code.message
        return rejection

    def _merge(self, rejections: list[object], answer: T) -> T:
        for rejection in rejections:
            getattr(answer, self.target).extend(getattr(rejection, self.target))
        return answer


class InHandler(NamedTuple):
    """The handler asks the authorizer itself."""

    def guard(self, broker: BrokerComponents, api_key: int, handler: Handler) -> Handler:
        return handler


def guarded(broker: BrokerComponents, api_key: int, rules: Sequence[Rule], handler: Handler) -> Handler:
    """Return the handler with the guards of its rules before it, the first rule first."""
    if broker.authorizer.enabled:
        for rule in reversed(rules):
            handler = rule.guard(broker, api_key, handler)
    return handler


def _allows(broker: BrokerComponents, context: RequestContext, action: Action | None) -> bool:
    return action is None or broker.authorizer.allows(context, *action)


# -- Actions


def on_cluster(operation: int) -> ActionOf:
    action = Action(operation, CLUSTER, CLUSTER_NAME)
    return lambda broker, request, element: action


def on_group(operation: int) -> ActionOf:
    """Return the group of a request that names one."""
    return lambda broker, request, element: Action(operation, GROUP, request.group_id)


def on_each_group(operation: int) -> ActionOf:
    """Return a rule for elements that are group ids."""
    return lambda broker, request, element: Action(operation, GROUP, element)


def on_transactional_id(operation: int) -> ActionOf:
    """Return the transactional id of a request that names one."""
    return lambda broker, request, element: Action(operation, TRANSACTIONAL_ID, request.transactional_id)


def on_each_transactional_id(operation: int) -> ActionOf:
    """Return a rule for elements that are transactional ids."""
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
