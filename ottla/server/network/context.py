"""The request context: what a handler may know about a request besides the request itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.server.principal import Principal

#: Contexts kept per connection; clients use a dozen pairs of API and version.
CONTEXTS_MAX = 64


class AnyPause(Protocol):
    """A pause of the peer's connection (`pauses.Pause`)."""

    def end(self) -> None: ...


class Peer(Protocol):
    """The other end: a `Connection`, or, for a request that a broker forwarded in an envelope, the original client."""

    @property
    def id(self) -> str: ...
    @property
    def listener_name(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def peer_port(self) -> int: ...
    @property
    def local_host(self) -> str: ...
    @property
    def local_port(self) -> int: ...
    @property
    def client_software_name(self) -> str: ...
    @property
    def client_software_version(self) -> str: ...
    @property
    def opened_ns(self) -> int: ...
    def on_close(self, callback: Callable[[], None]) -> None: ...
    def pause(self) -> AnyPause: ...
    def close(self, reason: str) -> None: ...


class RequestContext:
    """Shared by all requests of one connection that have the same API, version and client id; it is read-only."""

    __slots__ = ("api_key", "api_version", "client_id", "connection")

    def __init__(self, api_key: int, api_version: int, client_id: str | None, connection: Peer) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.connection = connection

    def __repr__(self) -> str:
        return f"<RequestContext api_key={self.api_key} v{self.api_version} client_id={self.client_id!r} {self.connection.id}>"
