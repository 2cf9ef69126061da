"""Who a peer is: Kafka's principal, a type and a name."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Written "User:alice". `token_authenticated`: known by a delegation token, so it may make no further tokens."""

    type: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
