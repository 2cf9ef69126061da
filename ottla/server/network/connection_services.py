"""What a connection is given by others: the receiver of its frames, its login, its listener, and responses whose turn has not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.primitives import Pieces
from ottla.server.network.frames import Buffer, ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.turn import RequestTurn

Served = TypeVar("Served", contravariant=True)


class PendingResponse:
    """A pending response, whose turn has not come: the parts of its frame, or None while there are none (`pending_reply.PendingReply`)."""

    __slots__ = ("nbytes", "parts")

    def __init__(self, parts: Pieces | None, nbytes: int) -> None:
        self.parts = parts
        self.nbytes = nbytes

    def cancel(self) -> None:
        """The connection has been closed; only a response without parts has something to cancel."""


class Requests(Protocol[Served]):
    """The receiver of a connection's frames: the dispatcher or the login."""

    turn: RequestTurn
    mono_ns: Callable[[], int]

    def dispatch(self, connection: Served, buf: Buffer, pos: int, end: int) -> None:
        """Serve the frame buf[pos:end]."""


class Renewable(Protocol):
    """The login of a connection to a SASL listener."""

    @property
    def has_succeeded(self) -> bool: ...
    def renew(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse: ...


class Acceptor(Protocol[Served]):
    """The listener that accepted the connection."""

    name: str
    inbox: ReceiveBuffer
    limits: ConnectionLimits
    refused: int
    unread: int
    held_up: int
    bytes_in: int
    bytes_out: int

    def is_too_fast(self, connection: Served) -> bool: ...
    def admit(self, connection: Served) -> str | None: ...
    def forget(self, connection: Served) -> None: ...
    def linger(self, connection: Served) -> None: ...
    def idle_expired(self, connection: Served) -> None: ...
