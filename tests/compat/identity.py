"""An identity provider: its keys in a file, and tokens that it signs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER, AUDIENCE = "https://idp.example", "kafka"


class Identity:
    """The identity of one subject, with tokens for it."""

    def __init__(self, subject: str, keys: Path) -> None:
        self._subject = subject
        self._key = rsa.generate_private_key(65537, 2048)
        self.keys = keys
        row = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [{**row, "kid": "k"}]}))

    def token(self) -> str:
        now_s = int(time.time())
        claims = {"sub": self._subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "k"})

    def unsigned(self) -> str:
        """Return a token with the algorithm none."""
        now_s = int(time.time())
        return jwt.encode({"sub": self._subject, "iat": now_s, "exp": now_s + 3600}, None, "none")
