"""How a channel to another node, or of a command to a broker, is secured. Who makes channels is handed one of these."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


class ClientTls:
    """The client's side of TLS. The context is replaced when certificates are; connections that are open stay so."""

    __slots__ = ("context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """`tls` None: bytes go in the clear."""

    tls: ClientTls | None = None


PLAINTEXT = PeerSecurity()
