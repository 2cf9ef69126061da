"""Guards stand before handlers: unauthorized requests or elements get the API's own error, and the handler sees only the rest.

    Whole      one resource, one answer: a request that is not allowed never reaches the handler
    Each       a list of resources: those not allowed are taken out of the request, and their errors added to the response
    After      the answer says what the caller may do, or leaves out what it may not see
    a function (broker, handler) -> handler, for the APIs where neither will do

A node without an authorizer has no guards at all: `guarded` then gives back the handler, and nothing is paid per request.
Rejections are made by server/network/error_reply.py, so that they look exactly like the API's other errors.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.broker.authorization.actions import Action, ActionOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ranges import Versions, parse
from ottla.server.authorization.operations import AUTHORIZATION_ERRORS
from ottla.server.network import reply
from ottla.server.network.context import RequestContext
from ottla.server.network.error_reply import error_reply
from ottla.server.network.reply import Answer

T = TypeVar("T")
S = TypeVar("S")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Handler = Callable[[Any, RequestContext], Any]
HandlerOf = Callable[[RequestT, RequestContext], Answer[ResponseT]]
Custom = Callable[[BrokerComponents, Any], Handler]
ALL_VERSIONS = parse("0+")


class Whole(NamedTuple):
    """Any one of `actions` is enough. Of several rows each has to be satisfied."""

    actions: tuple[ActionOf, ...]
    versions: Versions = ALL_VERSIONS


class Each(NamedTuple):
    """`source` lists the resources in the request, `target` their answers in the response."""

    source: str
    target: str
    action: ActionOf
    #: True if the response has an error message besides the code.
    has_message: bool = False
    #: If this is allowed, the elements are not checked one by one.
    unless: ActionOf | None = None
    versions: Versions = ALL_VERSIONS


class After(NamedTuple):
    """Changes the response in place. The first rule of an API is applied last."""

    shape: Callable[[BrokerComponents, Any, RequestContext, Any], None]


Rules = Sequence[Whole | Each | After] | Custom


def guarded(broker: BrokerComponents, api_key: int, rules: Rules, handler: Handler) -> Handler:
    if not broker.authorizer.enabled or not rules:
        return handler
    inner = handler
    if callable(rules):
        inner = rules(broker, handler)
    else:
        for rule in reversed(rules):
            inner = _guard(broker, api_key, rule, inner)
    if not is_async(handler):
        return inner

    async def guarded_handler(request: object, context: RequestContext) -> Any:
        answer = inner(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return guarded_handler


def _guard(broker: BrokerComponents, api_key: int, rule: Whole | Each | After, handler: Handler) -> Handler:
    if isinstance(rule, Whole):
        return _Whole(broker, rule, handler)
    if isinstance(rule, Each):
        return _Each(broker, api_key, rule, handler)

    def after(request: object, context: RequestContext) -> Any:
        return then(handler(request, context), partial(_shaped, broker, rule, request, context))

    return after


def _shaped(broker: BrokerComponents, rule: After, request: object, context: RequestContext, answer: T) -> T:
    rule.shape(broker, request, context, answer)
    return answer


def is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(getattr(handler, "func", handler)))


class _Whole:
    def __init__(self, broker: BrokerComponents, rule: Whole, handler: Handler) -> None:
        self._broker = broker
        self._rule = rule
        self._handler = handler

    def __call__(self, request: object, context: RequestContext) -> Any:
        if context.api_version in self._rule.versions:
            require(self._broker, context, [action(self._broker, request, None) for action in self._rule.actions])
        return self._handler(request, context)


class _Each:
    def __init__(self, broker: BrokerComponents, api_key: int, rule: Each, handler: Handler) -> None:
        self._broker = broker
        self._api_key = api_key
        self._rule = rule
        self._handler = handler

    def __call__(self, request: object, context: RequestContext) -> Any:
        rule = self._rule
        if context.api_version not in rule.versions:
            return self._handler(request, context)
        if rule.unless is not None and allows(self._broker, context, rule.unless(self._broker, request, None)):
            return self._handler(request, context)
        elements = getattr(request, rule.source)
        rejected: dict[ErrorCode, list[object]] = {}
        kept = []
        for element in elements:
            action = rule.action(self._broker, request, element)
            if action is None or allows(self._broker, context, action):
                kept.append(element)
            else:
                rejected.setdefault(AUTHORIZATION_ERRORS[action.resource_type], []).append(element)
        if not rejected:
            return self._handler(request, context)
        rejections = [self._rejection(request, context, code, rejected[code]) for code in rejected]
        if not kept:
            return _merge(rule.target, rejections[1:], rejections[0])
        setattr(request, rule.source, kept)
        return then(self._handler(request, context), partial(_merge, rule.target, rejections))

    def _rejection(self, request: object, context: RequestContext, code: ErrorCode, elements: list[object]) -> Any:
        only = copy.copy(request)
        setattr(only, self._rule.source, elements)
        rejection = error_reply(self._api_key, context.api_version, only, KafkaError(code))
        if self._rule.has_message:
            for answer in getattr(rejection, self._rule.target):
                answer.error_message = code.message
        return rejection


def _merge(target: str, rejections: list[object], answer: T) -> T:
    for rejection in rejections:
        getattr(answer, target).extend(getattr(rejection, target))
    return answer


def allows(broker: BrokerComponents, context: RequestContext, action: Action | None) -> bool:
    return action is None or broker.authorizer.allows(context, *action)


def require(broker: BrokerComponents, context: RequestContext, actions: Sequence[Action | None]) -> None:
    """Require one of the actions. If none is allowed, the resource type of the last one decides the error code."""
    if not any(allows(broker, context, action) for action in actions):
        last = actions[-1]
        assert last is not None
        raise KafkaError(AUTHORIZATION_ERRORS[last.resource_type])


def then(answer: Any, step: Callable[[T], S]) -> Any:
    """Returns `step(answer)`, or a reply with it if the answer comes later."""
    return _then_awaited(answer, step) if inspect.isawaitable(answer) else reply.then(answer, step)


async def _then_awaited(answer: Awaitable[T], step: Callable[[T], S]) -> S:
    return step(await answer)
