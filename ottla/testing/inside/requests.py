"""Handlers that fail, wait, or hide versions, as a test wants.

Faults affect only clients' requests, never those of nodes and of `ottla.testing`.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.server.clock import Clock, pause
from ottla.server.network.connection import Connection
from ottla.server.network.context import NOT_SERVED, FastPath, Reply, RequestContext
from ottla.server.network.frames import Buffer
from ottla.server.network.route import AsyncHandler, Handler, Route
from ottla.testing.connection import CLIENT_ID
from ottla.testing.inside.faults import NodeFaults, RequestFault

#: The client ids of nodes (broker/cluster/channels.py), and of the test's own requests.
SPARED = ("broker-", CLIENT_ID)


class RequestFaults:
    """Wraps the handlers of a node's routes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[int, list[RequestFault]] = {}
        self._versions: dict[int, tuple[int, int]] = {}

    @property
    def active(self) -> bool:
        return bool(self._faults or self._versions)

    def set(self, faults: NodeFaults) -> None:
        self._faults = {}
        for fault in faults.requests:
            self._faults.setdefault(fault.api_key, []).append(fault)
        self._versions = {key: (low, high) for key, low, high in faults.versions}

    def stand_before(self, route: Route) -> None:
        """Wrap a node's handlers, before its connections are served."""
        handler = route.handler
        route.handler = self._awaited(route, handler) if route.is_async else self._plain(route, handler)
        if route.fast_path is not None:
            make = route.fast_path
            route.fast_path = lambda *made_of: _watched(self, make(*made_of))

    def _plain(self, route: Route, handler: Handler) -> Handler:
        def serve(request: Any, context: RequestContext) -> Any:
            if not self.active or _is_spared(request, context):
                return handler(request, context)
            fault = self._next(route, context)
            if fault is None:
                return self._shown(route, handler(request, context))
            error = None if fault.error is None else KafkaError(ErrorCode(fault.error))
            if error is not None and not fault.served:
                answer: Any = error
            else:
                answer = handler(request, context)
            return self._later(answer, error, fault.delay_ms)

        return serve

    def _awaited(self, route: Route, handler: AsyncHandler) -> AsyncHandler:
        async def serve(request: Any, context: RequestContext) -> Any:
            if not self.active or _is_spared(request, context):
                return await handler(request, context)
            fault = self._next(route, context)
            if fault is None:
                return await handler(request, context)
            answer = None if fault.error is not None and not fault.served else await handler(request, context)
            await pause(self._clock, fault.delay_ms)
            if fault.error is not None:
                raise KafkaError(ErrorCode(fault.error))
            return answer

        return serve

    def _next(self, route: Route, context: RequestContext) -> RequestFault | None:
        """Return the fault for the next request, if there is one. Raises KafkaError if this version is hidden from clients."""
        low, high = self._versions.get(route.api_key, (0, context.api_version))
        if not low <= context.api_version <= high:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return next((fault for fault in self._faults.get(route.api_key, ()) if fault.strikes()), None)

    def _later(self, answer: Any, error: KafkaError | None, delay_ms: int) -> Reply[Any]:
        """Return the response, or the error in its place, after the delay."""
        reply: Reply[Any] = Reply()

        def arrived(outcome: Any) -> None:
            final = outcome if error is None else error
            self._clock.call_later(delay_ms, lambda: None if reply.cancelled else reply.complete(final))

        if isinstance(answer, Reply):
            reply.kept_bytes = answer.kept_bytes
            reply.on_cancel = answer.cancel
            answer.when_done(arrived)
        else:
            arrived(answer)
        return reply

    def _shown(self, route: Route, answer: Any) -> Any:
        if not self._versions or route.api_key != ApiKey.API_VERSIONS or not isinstance(answer, ApiVersionsResponse):
            return answer
        answer.api_keys = [self._narrowed(row) for row in answer.api_keys]
        return answer

    def _narrowed(self, row: ApiVersion) -> ApiVersion:
        low, high = self._versions.get(row.api_key, (row.min_version, row.max_version))
        return ApiVersion(api_key=row.api_key, min_version=low, max_version=high)


class _Watched:
    """A fast path that leaves requests to their handlers while any fault is in force."""

    def __init__(self, faults: RequestFaults, inner: FastPath[Connection]) -> None:
        self._faults = faults
        self._inner = inner
        self.route = inner.route

    def serve(self, connection: Connection, buf: Buffer, pos: int, end: int) -> int:
        return NOT_SERVED if self._faults.active else self._inner.serve(connection, buf, pos, end)


def _watched(faults: RequestFaults, made: FastPath[Connection] | None) -> FastPath[Connection] | None:
    return None if made is None else _Watched(faults, made)


def _is_spared(request: Any, context: RequestContext) -> bool:
    """Return whether a node has sent the request.

    A node that fetches has a replica id; other requests have the node's client id.
    """
    if (context.client_id or "").startswith(SPARED):
        return True
    state = getattr(request, "replica_state", None)
    return max(getattr(request, "replica_id", -1), getattr(state, "replica_id", -1)) >= 0
