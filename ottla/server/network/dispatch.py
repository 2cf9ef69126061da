"""The dispatcher brings a frame to its handler and sends the response: header, route, version, decoding, call, encoding,
counters.

A request that is answered at once makes no task, no future and no exception. This is what may fail on the way:

    not a request header, an API that does not exist       the connection is closed, as Kafka does
    a version that this node does not serve                closed likewise; ApiVersions is answered in v0 with error 35
    an API that Kafka has and this node does not serve     the API's own error reply, UNSUPPORTED_VERSION
    a body that cannot be decoded                          closed; for a forwarded request after the controller has rejected it
    KafkaError from the handler                            the API's own error reply
    anything else from the handler                         UNKNOWN_SERVER_ERROR, and the traceback in the log
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from ottla.protocol.api import APIS, ApiKey, decode_request_header
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage, ProtocolError
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.primitives import Pieces, skip_tags
from ottla.server.clock import Clock
from ottla.server.network.connection import Connection
from ottla.server.network.context import CONTEXTS_MAX, Reply, RequestContext
from ottla.server.network.error_reply import error_reply
from ottla.server.network.frames import RECEIVE_BUFFER_BYTES, Buffer
from ottla.server.network.pauses import RequestTurn
from ottla.server.network.pending_reply import MeteredReply, PendingReply, cannot_encode, failure_reply, meter, metered
from ottla.server.network.route import Route, RouteTable, VersionCodec, make_codec
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.tasks import Spawn

read_header = Struct(">hhih").unpack_from
HEADER_BYTES = 10
API_VERSIONS = ApiKey.API_VERSIONS
INTRODUCTIONS = (int(API_VERSIONS), int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE))


class Dispatcher:
    """The dispatcher for one kind of listener of a node: the routes that are served there."""

    __slots__ = ("_by_key", "clock", "mono_ns", "quotas", "routes", "spawn", "turn")

    def __init__(self, routes: RouteTable, clock: Clock, spawn: Spawn, quotas: ClientQuotas | None = None) -> None:
        self.routes = routes
        self.clock = clock
        self.mono_ns = clock.mono_ns
        self.turn = RequestTurn(clock)
        self.spawn = spawn
        self.quotas = ClientQuotas(clock) if quotas is None else quotas
        self._by_key = routes.by_key

    def serve_introductions_only(self) -> None:
        """Close each connection at its next request, except a request that only introduces the client (`ClientGate`).

        Connections with a fast path are not closed.
        """
        self._by_key = [each if key in INTRODUCTIONS else None for key, each in enumerate(self.routes.by_key)]

    def serve_all(self) -> None:
        self._by_key = self.routes.by_key

    def versions(self, route: Route) -> tuple[int, int]:
        """Return the versions of an API that clients have."""
        return route.min_version, route.max_version

    def dispatch(self, connection: Connection, buf: Buffer, pos: int, end: int) -> None:
        """Serve the frame buf[pos:end] that the connection's fast path, if there is one, has left to the handler."""
        if end - pos < HEADER_BYTES:
            connection.refuse(f"a request of {end - pos} bytes has no header")
            return
        api_key, version, correlation_id, size = read_header(buf, pos)
        route = self._by_key[api_key] if 0 <= api_key < len(self._by_key) else None
        if route is None or not route.min_version <= version <= route.max_version:
            self._unserved(connection, buf, pos, end, route)
            return
        codec = route.codecs[version] or route.codec(version)
        assert codec is not None
        body = pos + HEADER_BYTES
        if size > 0:
            stop = body + size
            client_id_bytes = buf[body:stop]
            body = stop
        else:
            client_id_bytes = b""
        if codec.flexible_request:
            tags = buf[body] if body < end else 0
            body += 1
            if tags:
                body = self._skip_tags(connection, buf, body, end, tags)
        if client_id_bytes == connection.client_id_bytes:
            context = connection.contexts.get(api_key << 16 | version)
            if context is None:
                context = self._context(connection, api_key, version, size)
        else:
            context = self._other_client(connection, api_key, version, size, client_id_bytes)
        try:
            request, _ = codec.decode(buf, body, end)
        except MalformedMessage as error:
            connection.refuse(unreadable(route.name, version, error))
            return
        if route.is_async:
            asked = bytes(memoryview(buf)[pos:end]) if route.takes_frame else request
            self._run(connection, route, codec, correlation_id, asked, context)
            return
        try:
            answer = route.handler(request, context)
        except Exception as error:
            answer = failure_reply(route, version, request, error)
        if self.quotas.active and meter(self, connection, route, correlation_id, request, context, end - pos, answer):
            return
        # A fast path serves a whole read without a look at socket.request.max.bytes.
        if (
            route.fast_path is not None
            and connection.fast_path is None
            and connection.request_bytes_max >= RECEIVE_BUFFER_BYTES
        ):
            connection.fast_path = route.fast_path(self, route, request, context, bytes(memoryview(buf)[pos:end]))
        if answer.__class__ is Reply:
            if not answer.done:
                pending = PendingReply(self, connection, route, codec, correlation_id, request, answer)
                answer.attach(pending)
                connection.wait(pending, answer.kept_bytes)
                connection.stamp_ns = self.mono_ns()
                return
            answer = answer.take()
            if isinstance(answer, KafkaError):
                answer = failure_reply(route, version, request, answer)
        if answer is not None:
            self._answer(connection, codec, correlation_id, answer)
        now_ns = self.mono_ns()
        route.count(now_ns - connection.stamp_ns)
        connection.stamp_ns = now_ns

    def _skip_tags(self, connection: Connection, buf: Buffer, pos: int, end: int, tags: int) -> int:
        try:
            return skip_tags(buf, pos, end, tags)
        except (MalformedMessage, IndexError):
            return end + 1  # decoding then fails at once with an error

    def _context(self, connection: Connection, api_key: int, version: int, size: int) -> RequestContext:
        contexts = connection.contexts
        if len(contexts) >= CONTEXTS_MAX:
            contexts.clear()
        client_id = None if size < 0 else connection.client_id or ""
        context = contexts[api_key << 16 | version] = RequestContext(api_key, version, client_id, connection)
        return context

    def _other_client(
        self, connection: Connection, api_key: int, version: int, size: int, client_id_bytes: Buffer
    ) -> RequestContext:
        connection.client_id_bytes = bytes(client_id_bytes)
        connection.client_id = connection.client_id_bytes.decode("utf-8", "replace")
        connection.contexts.clear()
        return self._context(connection, api_key, version, size)

    def _run(
        self,
        connection: Connection,
        route: Route,
        codec: VersionCodec,
        correlation_id: int,
        request: object,
        context: RequestContext,
    ) -> None:
        """Start an async handler. The connection serves its next request after the response."""
        reply: Reply[Any] = Reply()
        meters = metered(self, connection, route, request, context, 0) if self.quotas.active else None
        place = (self, connection, route, codec, correlation_id, request, reply)
        pending = PendingReply(*place) if meters is None else MeteredReply(*place, meters)
        reply.attach(pending)
        connection.wait(pending, 0)
        pause = connection.pause()

        async def run() -> None:
            try:
                answer = await route.handler(request, context)
            except Exception as error:
                answer = self._failure(connection, route, codec.version, request, error)
            if not reply.cancelled:
                reply.complete(answer)
            pause.end()

        self.spawn(run(), f"{route.name} {connection.id}")

    def _failure(self, connection: Connection, route: Route, version: int, request: Any, error: Exception) -> Any:
        """Return the response for `error`. It repeats parts of the request, so the frame must be decoded now."""
        if route.takes_frame:
            try:
                request = decode_frame(make_codec(route.api_key, version), request, 0, len(request))
            except MalformedMessage as malformed:
                connection.refuse(unreadable(route.name, version, malformed))
                return None
        return failure_reply(route, version, request, error)

    def _unserved(self, connection: Connection, buf: Buffer, pos: int, end: int, route: Route | None) -> None:
        api_key, version, correlation_id, _ = read_header(buf, pos)
        if api_key == API_VERSIONS and route is not None:
            # Only ApiVersions is answered in every version: the response lists the supported ones (KIP-511).
            low, high = self.versions(route)
            row = ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high)
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
            self._answer(connection, make_codec(API_VERSIONS, 0), correlation_id, response)
            return
        api = APIS.get(api_key)
        if self._by_key is not self.routes.by_key and api is not None:
            connection.shut()  # without a log line, because clients retry again and again
        elif api is None:
            connection.refuse(f"Unknown API key {api_key}")
        elif route is not None or not api.min_version <= version <= api.max_version:
            connection.refuse(f"Received request api key {api.name} with version {version} which is not enabled")
        else:
            codec = make_codec(api_key, version)
            error = KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"This node does not serve {api.name}")
            try:
                request = decode_frame(codec, buf, pos, end)
            except ProtocolError as malformed:
                connection.refuse(unreadable(api.name, version, malformed))
                return
            reply = error_reply(api_key, version, request, error)
            if reply is None:
                # Produce with acks=0 gets no response, so only the close of the connection shows the producer the error.
                connection.refuse(f"this node does not serve {api.name}, and the request wants no answer")
                return
            self._answer(connection, codec, correlation_id, reply)

    def _answer(self, connection: Connection, codec: VersionCodec, correlation_id: int, response: object) -> None:
        parts: Pieces = []
        try:
            codec.encode(response, parts)
        except Exception:
            cannot_encode(connection, codec.version, response)
            return
        nbytes = codec.head_bytes
        for part in parts:
            nbytes += len(part)
        connection.reply(codec.pack_head(nbytes, correlation_id), parts, nbytes + 4)


def decode_frame(codec: VersionCodec, buf: Buffer, pos: int, end: int) -> Any:
    """Decode the request in the frame buf[pos:end]. Its header is read again."""
    return codec.decode(buf, decode_request_header(buf, pos, end)[-1], end)[0]


def unreadable(name: str, version: int, error: ProtocolError) -> str:
    return f"Error getting request for apiKey: {name}, apiVersion: {version}: {error}"
