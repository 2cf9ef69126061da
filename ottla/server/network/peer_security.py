"""TLS and login of the channels to other nodes, and of a command to brokers. The creator of channels gets one `PeerSecurity`."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from ottla.server.network.peer_login import PeerLogin


class ClientTls:
    """The client's side of TLS. The context is replaced when certificates are; connections that are open stay so."""

    __slots__ = ("context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """`tls` None: bytes go in the clear. `login` None: the listener has no SASL."""

    tls: ClientTls | None = None
    login: PeerLogin | None = None


PLAINTEXT = PeerSecurity()
