"""TLS and login of the channels to other nodes, and of a command to brokers. The creator of channels gets one `PeerSecurity`.

The wheel of the Spark connector has these types without the channel.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.server.network.wire import Ask

#: Sends a request; the result is the response.
Send: TypeAlias = Callable[[Ask], Awaitable[object]]


class LoginRejected(Exception):
    """The server does not prove who it is, does not speak the mechanism, or does not accept the credentials."""


class ClientLogin(Protocol):
    """The client's side of SASL."""

    async def log_in(self, host: str, where: str, send: Send, version: int) -> int:
        """Return the lifetime of the session in milliseconds, 0 if it does not end. `version` is that of SaslAuthenticate.

        Raises:
            LoginRejected: one side does not accept the other.
        """


@dataclass(slots=True, eq=False)
class ClientTls:
    """The client's side of TLS. The context is replaced when certificates are; connections that are open stay so."""

    context: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """Security of a connection to a peer. `tls` None: bytes go in the clear. `login` None: the listener has no SASL."""

    tls: ClientTls | None = None
    login: ClientLogin | None = None


PLAINTEXT = PeerSecurity()
