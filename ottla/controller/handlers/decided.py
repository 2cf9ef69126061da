"""Handlers of requests that are one decision: authorize, decide, respond after the commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply

ControllerHandler = Callable[[ControllerComponents, Any, RequestContext], Any]


def decided(operation: int, decide: Callable[[ControlState, Any], Outcome[Any]]) -> ControllerHandler:
    """Returns the handler. The client must be authorized for `operation` on the cluster."""

    @wraps(decide)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Reply[Any]:
        components.require_on_cluster(context, operation)
        return components.controller.write(lambda state: decide(state, request))

    return handle


def described(operation: int, describe: Callable[[ControllerComponents, Any], Any]) -> ControllerHandler:
    """Returns the handler of a request that changes nothing. The client must be authorized for `operation` on the cluster."""

    @wraps(describe)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Any:
        components.require_on_cluster(context, operation)
        return describe(components, request)

    return handle


def decided_in_turns(operation: int, decide: Callable[[ControlState, Any], Decision[Any]]) -> ControllerHandler:
    """Returns the handler of a request that may be about thousands of partitions."""

    @wraps(decide)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Reply[Any]:
        components.require_on_cluster(context, operation)
        return components.controller.write_in_turns(in_turns(lambda state: decide(state, request)))

    return handle


def in_time(handler: ControllerHandler) -> ControllerHandler:
    """Wraps the handler of a request with a `timeout_ms`: 0 times out, as in Kafka's event queue; others are decided at once."""

    @wraps(handler)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Any:
        if request.timeout_ms <= 0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return handler(components, request, context)

    return handle
