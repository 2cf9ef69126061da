"""PLAIN (RFC 4616): the client sends its name and password, so it is for TLS listeners or a trusted network.

expecting the one token of the client     authorization id NUL name NUL password
-> Authenticated                           the password is that of `user_<name>` in the listener's JAAS entry
-> SaslFailure                             anything else
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.server.sasl.exchange import Authenticated, SaslFailure, user

TOKEN_PARTS = 3
FAILED = "Authentication failed: "


class PlainExchange:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> Authenticated:
        # Java replaces malformed UTF-8 in the same way. More than three separators make Kafka count four parts.
        parts = token.decode("utf-8", "replace").split("\0", TOKEN_PARTS)
        if len(parts) != TOKEN_PARTS:
            raise _failure(f"Invalid SASL/PLAIN response: expected {TOKEN_PARTS} tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise _failure(f"{FAILED}username not specified")
        if not password:
            raise _failure(f"{FAILED}password not specified")
        expected = self._passwords.get(name)
        # The comparison takes place for unknown users, too, and takes the same time wherever the texts differ.
        equal = hmac.compare_digest(password.encode("utf-8", "replace"), (expected or "").encode("utf-8", "replace"))
        if expected is None or not equal:
            raise _failure(f"{FAILED}Invalid username or password")
        if authorization_id and authorization_id != name:
            raise _failure(f"{FAILED}Client requested an authorization id that is different from username")
        return Authenticated(user(name))


def _failure(message: str) -> SaslFailure:
    return SaslFailure(message, message)
