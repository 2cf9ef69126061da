"""The server's side of a SASL exchange, whatever the mechanism: a token of the client in, a challenge or the end of it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from ottla.server.security.principal import Principal


class Authenticated(NamedTuple):
    """The exchange has succeeded. `expires_ms` is the end of the credential's validity in wall-clock time, if it has one."""

    principal: Principal
    token: bytes = b""
    expires_ms: int | None = None


class SaslFailure(Exception):
    """The exchange has failed. The reason is for the node's log; it never includes a secret.

    `for_client` is the message that Kafka sends to the client. Where it is None, Kafka sends a general one that does not say
    whether the user exists.
    """

    def __init__(self, reason: str, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


class Exchange(Protocol):
    """One attempt of one client."""

    def evaluate(self, token: bytes) -> bytes | Authenticated:
        """Returns the challenge, or the end of a successful exchange.

        Raises:
            SaslFailure: the exchange has failed.
        """


Mechanism: TypeAlias = Callable[[], Exchange]


def user(name: str, *, token_authenticated: bool = False) -> Principal:
    return Principal("User", name, token_authenticated)
