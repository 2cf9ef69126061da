"""Routes: the handler of each API, one row per API, and the table of all APIs that a node serves."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Any

from ottla.protocol.api import APIS, ApiKey, request_header_version, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.primitives import Pieces
from ottla.protocol.releases import BETWEEN_NODES, BROKER, DEFAULT, Advertised
from ottla.protocol.schema import fields
from ottla.protocol.slotted import frozen
from ottla.server.network.context import RequestContext

Handler = Callable[[Any, RequestContext], Any]
AsyncHandler = Callable[[Any, RequestContext], Awaitable[Any]]
#: Appends the bytes of a response to the list.
Encode = Callable[[Any, Pieces], None]

#: Latencies are counted by the bit length of their microseconds. 42 bits are fifty days, and no request waits longer than 25: its time-out
#: is in 32 bits of milliseconds.
LATENCY_BUCKETS = 43

# A reply's size and correlation id, and a zero byte that means no tagged fields.
_HEAD = Struct(">ii")
_FLEXIBLE_HEAD = Struct(">iix")


@frozen
class VersionCodec:
    """Decoders and encoders of one version of an API. It is no named tuple, because a request reads five fields, at 22 ns each."""

    version: int
    decode: Callable[[Any, int, int], tuple[Any, int]]
    encode: Encode
    flexible_request: bool  # the request header has tagged fields
    pack_head: Callable[[int, int], bytes]
    head_bytes: int  # the size of the response header without its size field


class Route:
    """One API: its handler, the versions served, and counts of its requests.

    A plain handler answers at once, by a Reply, or not at all; an `async def` handler runs as a task, and its connection
    dispatches nothing further until it has answered. A route that `takes_frame` decodes and encodes nothing: its `async def`
    handler gets the bytes of the request's frame, from header to end, and returns the bytes of the response's body.
    """

    __slots__ = (
        "_encoder", "api", "api_key", "codecs", "errors", "fast_path", "handler", "is_async", "latency_buckets",
        "latency_ns", "max_version", "min_version", "name", "takes_frame",
    )  # fmt: skip

    def __init__(
        self,
        api_key: int,
        handler: Handler,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
        encoder: Callable[[int], Encode] | None = None,
        takes_frame: bool = False,
        fast_path: Callable[..., Any] | None = None,
    ) -> None:
        """Take an `encoder` for each version, if responses may be other objects than the API's response.

        `fast_path(dispatcher, route, request, context, frame)` makes the fast path of a connection (`FastPath`).
        """
        self.api = APIS[ApiKey(api_key)]
        self.api_key = api_key
        self.name = self.api.name
        self.handler = handler
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(getattr(handler, "func", handler)))
        self.min_version = self.api.min_version if min_version is None else min_version
        self.max_version = self.api.max_version if max_version is None else max_version
        # Codecs by version. A codec is created at its first use, because most versions are never used.
        self.codecs: list[VersionCodec | None] = [None] * (self.max_version + 1)
        self._encoder = encoder
        self.takes_frame = takes_frame
        self.fast_path = fast_path
        self.latency_ns = 0
        self.latency_buckets = [0] * LATENCY_BUCKETS
        self.errors: dict[int, int] = {}

    @property
    def requests(self) -> int:
        """The number of requests that have been answered."""
        return sum(self.latency_buckets)

    def __repr__(self) -> str:
        return f"<Route {self.name} {self.min_version}-{self.max_version}>"

    def codec(self, version: int) -> VersionCodec | None:
        """Return the codec of a version, or None if the version is not served."""
        if not self.min_version <= version <= self.max_version:
            return None
        known = self.codecs[version]
        if known is None:
            known = make_codec(self.api_key, version)
            if self._encoder is not None:
                known = replace(known, encode=self._encoder(version))
            if self.takes_frame:
                known = replace(known, decode=leave_encoded, encode=body_encoder(known.encode))
            self.codecs[version] = known
        return known

    def count(self, elapsed_ns: int) -> None:
        """Count a request that has been answered."""
        self.latency_ns += elapsed_ns
        self.latency_buckets[(elapsed_ns >> 10).bit_length()] += 1

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def advertised_min(api_key: int, lowest: int) -> int:
    """Return the lowest version to list.

    It may be lower than the lowest served one, for clients that depend on it (KAFKA-18659).
    """
    return min(lowest, APIS[ApiKey(api_key)].advertised_min) if api_key in APIS else lowest


def make_codec(api_key: int, version: int) -> VersionCodec:
    api = APIS[ApiKey(api_key)]
    flexible_response = response_header_version(api_key, version) == 1
    return VersionCodec(
        version=version,
        decode=decoder(api.request, version),
        encode=encoder(api.response, version),
        flexible_request=request_header_version(api_key, version) == 2,
        pack_head=_FLEXIBLE_HEAD.pack if flexible_response else _HEAD.pack,
        head_bytes=5 if flexible_response else 4,
    )


@cache
def begins_with_throttle(api_key: int, version: int) -> bool:
    """Return True if the response's body starts with throttle_time_ms, the only field that is read in a forwarded response."""
    first = next((each for each in fields(APIS[ApiKey(api_key)].response) if version in each.versions), None)
    return first is not None and first.name == "throttle_time_ms"


def read_throttle(body: memoryview) -> int:
    return int.from_bytes(body[:4], "big", signed=True)


def leave_encoded(buf: Any, pos: int, end: int) -> tuple[None, int]:
    """Return the frame unchanged. It is the decoder of a handler that takes the frame."""
    return None, end


def body_encoder(encode: Encode) -> Encode:
    """Return an encoder for responses that are bytes already. The dispatcher's error responses are encoded as usual."""

    def append(answer: Any, parts: list[Any]) -> None:
        if isinstance(answer, memoryview):
            parts.append(answer)
        else:
            encode(answer, parts)

    return append


class RouteTable:
    """All routes of a kind of listener, by API key. Two rows for one API are a programming error."""

    def __init__(self, routes: Iterable[Route], advertised: Advertised = DEFAULT, listener: str = BROKER) -> None:
        self.rows = sorted(routes, key=lambda route: route.api_key)
        for route in self.rows:
            low, high = advertised.served(route.api)
            route.min_version, route.max_version = min(route.min_version, low), min(route.max_version, high)
        served = {route.api_key for route in self.rows}
        limits = advertised.limits(listener)
        #: The versions that clients get from an older release. None means all that are served.
        self.limits = limits and {
            key: versions
            for key, versions in limits.items()
            if key in served or key not in APIS or key in BETWEEN_NODES
        }
        # The list ends with the highest known key. Lookups of unknown keys are checked against its length.
        self.by_key: list[Route | None] = [None] * (max(APIS) + 1)
        for route in self.rows:
            assert self.by_key[route.api_key] is None, f"two routes for {route.name}"
            self.by_key[route.api_key] = route

    def get(self, api_key: int) -> Route | None:
        return self.by_key[api_key] if 0 <= api_key < len(self.by_key) else None
