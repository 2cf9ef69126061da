"""Requests of clients with a quota: what they take is counted, and their responses have the throttle time (KIP-219)."""

from __future__ import annotations

import copy
from typing import Any

from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import FetchRequest
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext
from ottla.server.network.pending_reply import PendingReply, Serving, failure_reply
from ottla.server.network.reply import Reply
from ottla.server.network.route import Codec, Route, begins_with_throttle, read_throttle
from ottla.server.quotas.clients import EXEMPT, FETCH, ClientMeters


class MeteredReply(PendingReply):
    """The reply to a client with a quota: it has the throttle time, and the time of its encoding counts."""

    __slots__ = ("meters",)

    def __init__(
        self,
        dispatcher: Serving,
        connection: Connection,
        route: Route,
        codec: Codec,
        correlation_id: int,
        request: object,
        reply: Reply[Any],
        meters: ClientMeters,
    ) -> None:
        super().__init__(dispatcher, connection, route, codec, correlation_id, request, reply)
        self.meters = meters

    def completed(self, response: object) -> None:
        connection, route, version = self.connection, self.route, self.codec.version
        if connection.closed:
            return
        began_ns = self.dispatcher.mono_ns()
        if isinstance(response, KafkaError):
            response = failure_reply(route, version, self.request, response)
        super().completed(self._throttled(response))
        self.dispatcher.quotas.spent(self.meters, self.dispatcher.mono_ns() - began_ns)

    def _throttled(self, answer: Any) -> Any:
        """Returns the response with its throttle time. After it is written, the connection is muted for that time (KIP-219)."""
        dispatcher, api_key = self.dispatcher, self.route.api_key
        if answer.__class__ is memoryview:
            wait_ms = read_throttle(answer) if begins_with_throttle(api_key, self.codec.version) else 0
        elif api_key == FETCH and answer is not None:
            wait_ms = answer.throttle_time_ms  # decided before the records were read
        else:
            wait_ms = dispatcher.quotas.wait_ms(self.meters, api_key, is_asked=answer is not None)
            wait_ms = max(wait_ms, getattr(answer, "throttle_time_ms", 0))  # a controller has set the one of mutations
            if wait_ms and hasattr(answer, "throttle_time_ms"):
                answer = copy.copy(answer)  # an answer may be shared by many clients
                answer.throttle_time_ms = wait_ms
        if wait_ms > 0:
            self.connection.mute(wait_ms, dispatcher.clock)
        return answer


def meter(
    dispatcher: Serving,
    connection: Connection,
    route: Route,
    correlation_id: int,
    request: Any,
    context: RequestContext,
    size: int,
    answer: Any,
) -> bool:
    """Count the request for its client's quotas, and answer it; returns False if it has none."""
    meters = metered(dispatcher, connection, route, request, context, size)
    if meters is None:
        return False
    codec = route.codec(context.api_version)
    assert codec is not None
    reply = answer if answer.__class__ is Reply else Reply()
    pending = MeteredReply(dispatcher, connection, route, codec, correlation_id, request, reply, meters)
    connection.wait(pending, reply.kept_bytes)
    if reply is not answer:
        pending.completed(answer)
    elif reply.done:
        pending.completed(reply.take())
    else:
        reply.attach(pending)
    connection.stamp_ns = dispatcher.mono_ns()
    return True


def metered(
    dispatcher: Serving, connection: Connection, route: Route, request: Any, context: RequestContext, size: int
) -> ClientMeters | None:
    """Count what a request has taken; None: it is not held back by any quota."""
    if route.api_key in EXEMPT or (route.api_key == FETCH and is_of_follower(request, context.api_version)):
        return None
    meters = dispatcher.quotas.of(connection.principal.name, context.client_id)
    dispatcher.quotas.take(meters, route.api_key, size, dispatcher.mono_ns() - connection.stamp_ns)
    return meters


def is_of_follower(request: FetchRequest, version: int) -> bool:
    return (request.replica_state.replica_id if version >= 15 else request.replica_id) >= 0
