"""The secret of a delegation token (KIP-48): an HMAC of its id with the key that all nodes have.

It is in no record and no log. While the key is replaced, node by node, there is a second key: OTHER_KEY. A token is valid with
the secret of either key.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

from ottla.server.principal import ANONYMOUS, Principal

DIGEST = "sha512"
KEY = "delegation.token.secret.key"
OTHER_KEY = "ottla.delegation.token.other.secret.key"


def hmac_of(key: str, token_id: str) -> bytes:
    return hmac.digest(key.encode(), token_id.encode(), DIGEST)


def may_handle_tokens(principal: Principal) -> bool:
    """Return True for clients that are authenticated, but not by a token: a token must not create further tokens."""
    return principal != ANONYMOUS and not principal.token_authenticated


def principal_of(text: str) -> Principal:
    """Read `User:alice`, as it is in records."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


class TokensByHmac:
    """Maps secrets to tokens. The secrets of each token are computed once, when the token is first seen."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()

    def find(self, token_ids: Collection[str], secret: bytes) -> str | None:
        """Return the id of the token among `token_ids`, or None."""
        for token_id in token_ids:
            if token_id not in self._known:
                self._known.add(token_id)
                self._ids |= {hmac_of(key, token_id): token_id for key in self._keys}
        found = self._ids.get(secret)
        if found is None or found in token_ids:
            return found
        # Removes the secrets of deleted tokens.
        self._ids = {secret: token_id for secret, token_id in self._ids.items() if token_id in token_ids}
        self._known = set(self._ids.values())
        return None
