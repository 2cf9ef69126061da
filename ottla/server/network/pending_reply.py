"""The place of a reply among its connection's replies, and the response for an error that a handler raised."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Pieces
from ottla.server.clock import Clock
from ottla.server.network.connection import Connection
from ottla.server.network.connection_services import PendingResponse
from ottla.server.network.error_reply import error_reply
from ottla.server.network.reply import Reply
from ottla.server.network.route import Codec, Route
from ottla.server.quotas.clients import ClientQuotas

log = logging.getLogger(__name__)


class Serving(Protocol):
    """The part of the dispatcher that a reply needs (dispatch.py)."""

    clock: Clock
    mono_ns: Callable[[], int]
    quotas: ClientQuotas


class PendingReply(PendingResponse):
    """The place of a reply among its connection's replies. `parts` is None until it is ready."""

    __slots__ = (
        "codec",
        "connection",
        "correlation_id",
        "dispatcher",
        "reply",
        "request",
        "route",
        "started_ns",
    )

    def __init__(
        self,
        dispatcher: Serving,
        connection: Connection,
        route: Route,
        codec: Codec,
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
        """The answer has come."""
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
        """The connection has been closed."""
        self.reply.cancel()


def encode_frame(codec: Codec, correlation_id: int, response: object, parts: Pieces) -> int:
    """Appends the parts of a response's frame to the empty list, and returns their bytes."""
    codec.encode(response, parts)
    nbytes = codec.head_bytes
    for part in parts:
        nbytes += len(part)
    parts.insert(0, codec.pack_head(nbytes, correlation_id))
    return nbytes + 4


def cannot_encode(connection: Connection, version: int, response: object) -> None:
    """Closes the connection after an internal error: an error response would need the same encoder. Answers may have secrets."""
    log.exception("A %s cannot be encoded in v%d", type(response).__name__, version)
    connection.refuse(f"a {type(response).__name__} v{version} could not be encoded")


def failure_reply(route: Route, version: int, request: object, error: Exception) -> Any:
    """Returns the response for an error that a handler raised."""
    if isinstance(error, KafkaError):
        route.count_error(error.code)
        return error_reply(route.api_key, version, request, error)
    # Without the request: it may have passwords, and 100 MB.
    log.error("Unexpected error handling %s v%d", route.name, version, exc_info=error)
    route.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
    return error_reply(route.api_key, version, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
