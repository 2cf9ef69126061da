"""TLS and login of channels to other nodes, and of a command's channels to brokers.

Whatever creates channels gets a `PeerSecurity`.

The wheel of the Spark connector has these types without the channel.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.server.network.wire import Ask

#: Sends a request. The result is its response.
Send: TypeAlias = Callable[[Ask], Awaitable[object]]


class LoginRejected(Exception):
    """The server does not prove its identity, does not support the mechanism, or does not accept the credentials."""


class ClientLogin(Protocol):
    """The client's side of SASL."""

    async def log_in(self, host: str, where: str, send: Send, version: int) -> int:
        """Return the lifetime of the session in milliseconds, or 0 if it does not end. `version` is that of SaslAuthenticate.

        Raises:
            LoginRejected: one side does not accept the other.
        """


@dataclass(slots=True, eq=False)
class ClientTls:
    """The client's side of TLS. The context is replaced together with certificates; open connections are not affected."""

    context: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """Security of a connection to a peer. `tls` None means no TLS; `login` None means that the listener has no SASL."""

    tls: ClientTls | None = None
    login: ClientLogin | None = None


PLAINTEXT = PeerSecurity()
