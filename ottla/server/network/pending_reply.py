"""The place of a reply among its connection's replies, and the response for an error that a handler raised.

Requests of clients with a quota always have a place: their bytes and time are counted, and their responses have the throttle
time (KIP-219).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Pieces
from ottla.server.clock import Clock
from ottla.server.network.connection import Connection
from ottla.server.network.context import PendingResponse, Reply, RequestContext
from ottla.server.network.error_reply import error_reply
from ottla.server.network.route import Route, VersionCodec, begins_with_throttle, read_throttle
from ottla.server.quotas.clients import EXEMPT, FETCH, ClientMeters, ClientQuotas

log = logging.getLogger(__name__)


class Serving(Protocol):
    """The part of the dispatcher that a reply needs (dispatch.py)."""

    clock: Clock
    mono_ns: Callable[[], int]
    quotas: ClientQuotas


class PendingReply(PendingResponse):
    """The place of a reply among its connection's replies. `parts` is None until it is ready."""

    __slots__ = ("codec", "connection", "correlation_id", "dispatcher", "reply", "request", "route", "started_ns")

    def __init__(
        self,
        dispatcher: Serving,
        connection: Connection,
        route: Route,
        codec: VersionCodec,
        correlation_id: int,
        request: object,
        reply: Reply[Any],
    ) -> None:
        self.dispatcher = dispatcher
        self.connection = connection
        self.route = route
        self.codec = codec
        self.correlation_id = correlation_id
        self.request = request
        self.reply = reply
        self.started_ns = connection.stamp_ns
        self.parts = None
        self.nbytes = 0

    def completed(self, response: object) -> None:
        """Send the response, which has come."""
        connection, route, codec = self.connection, self.route, self.codec
        if connection.closed:
            return
        if isinstance(response, KafkaError):
            response = failure_reply(route, codec.version, self.request, response)
        parts: Pieces = []
        if response is not None:
            try:
                self.nbytes = encode_frame(codec, self.correlation_id, response, parts)
            except Exception:
                cannot_encode(connection, codec.version, response)
                return
        self.parts = parts
        self.request = None
        route.count(self.dispatcher.mono_ns() - self.started_ns)
        connection.ready(self, self.reply.kept_bytes)

    def cancel(self) -> None:
        """Cancel the reply, because the connection has been closed."""
        self.reply.cancel()


def encode_frame(codec: VersionCodec, correlation_id: int, response: object, parts: Pieces) -> int:
    """Append the parts of a response's frame to the empty list, and return their bytes."""
    codec.encode(response, parts)
    nbytes = codec.head_bytes
    for part in parts:
        nbytes += len(part)
    parts.insert(0, codec.pack_head(nbytes, correlation_id))
    return nbytes + 4


def cannot_encode(connection: Connection, version: int, response: object) -> None:
    """Close the connection after an internal error: an error response would need the same encoder.

    The log has no contents of the response, which may have secrets.
    """
    log.exception("A %s cannot be encoded in v%d", type(response).__name__, version)
    connection.refuse(f"a {type(response).__name__} v{version} could not be encoded")


def failure_reply(route: Route, version: int, request: object, error: Exception) -> Any:
    """Return the response for an error that a handler raised."""
    if isinstance(error, KafkaError):
        route.count_error(error.code)
        return error_reply(route.api_key, version, request, error)
    # The request is not logged, because it may have passwords, or 100 MB.
    log.error("Unexpected error handling %s v%d", route.name, version, exc_info=error)
    route.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
    return error_reply(route.api_key, version, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


class MeteredReply(PendingReply):
    """The reply to a client with a quota. It has the throttle time, and the time of its encoding counts, too."""

    __slots__ = ("meters",)

    def __init__(
        self,
        dispatcher: Serving,
        connection: Connection,
        route: Route,
        codec: VersionCodec,
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
        """Return the response with its throttle time. After it is written, the connection is muted for that time (KIP-219)."""
        dispatcher, api_key = self.dispatcher, self.route.api_key
        if answer.__class__ is memoryview:
            wait_ms = read_throttle(answer) if begins_with_throttle(api_key, self.codec.version) else 0
        elif api_key == FETCH and answer is not None:
            wait_ms = answer.throttle_time_ms  # the time was decided before the records were read
        else:
            wait_ms = dispatcher.quotas.wait_ms(self.meters, api_key, is_asked=answer is not None)
            # a controller has already set the throttle time of mutations
            wait_ms = max(wait_ms, getattr(answer, "throttle_time_ms", 0))
            if wait_ms and hasattr(answer, "throttle_time_ms"):
                answer = copy.copy(answer)  # many clients may share a response
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
    """Count the request for its client's quotas, and answer it. Return False if the client has no quota."""
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
    """Count the bytes and the time of a request. Return None if no quota delays it."""
    if route.api_key in EXEMPT:
        return None
    if route.api_key == FETCH:
        replica_id = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
        if replica_id >= 0:
            return None  # a follower
    meters = dispatcher.quotas.of(connection.principal.name, context.client_id)
    dispatcher.quotas.take(meters, route.api_key, size, dispatcher.mono_ns() - connection.stamp_ns)
    return meters
