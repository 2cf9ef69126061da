"""Kafka's principal of a peer: a type and a name."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """Its text is "User:alice". `token_authenticated`: authenticated by a delegation token, so it may not create tokens."""

    type: str
    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
