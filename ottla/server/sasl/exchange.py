"""The server's side of a SASL exchange, for every mechanism: the answer to each token of the client is a challenge or the
outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from ottla.server.principal import Principal


class Authenticated(NamedTuple):
    """The exchange has succeeded.

    `expires_ms` is the end of the credential's validity in wall-clock time, if it has one. `token` is None if the mechanism
    ends with the client's token: then no frame is sent after SaslHandshake v0.
    """

    principal: Principal
    token: bytes | None = b""
    expires_ms: int | None = None


class Slow(NamedTuple):
    """The next step takes milliseconds (PBKDF2). The caller runs it on a worker, and meanwhile no other step of the exchange."""

    step: Callable[[], bytes | Authenticated]


class SaslFailure(Exception):
    """The exchange has failed. The reason is for the node's log; it never includes a secret.

    `for_client` is the message that Kafka sends to the client. If it is None, Kafka sends a general message that does not show
    whether the user exists.
    """

    def __init__(self, reason: str, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


class Exchange(Protocol):
    """One authentication attempt of a client."""

    def evaluate(self, token: bytes) -> bytes | Authenticated | Slow:
        """Return the next challenge, or the outcome, or a slow step that computes one of the two.

        Raises:
            SaslFailure: the exchange has failed.
        """


Mechanism: TypeAlias = Callable[[], Exchange]


def user(name: str) -> Principal:
    return Principal("User", name)
