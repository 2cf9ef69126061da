"""Gets this node's own OAUTHBEARER tokens by the JWT bearer grant (RFC 7523, KIP-1139): an assertion signed here is exchanged for a token.

What a later source says of a claim or header wins over an earlier one:

    sasl.oauthbearer.assertion.claim.aud, .iss and .sub
    sasl.oauthbearer.assertion.template.file, as {"header": {...}, "payload": {...}}
    alg and typ; iat, exp, nbf and, if there is to be one, jti

sasl.oauthbearer.assertion.file has a finished assertion instead. Files are read for each token, so that they can be replaced.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values
from ottla.server.sasl.client_credentials import EndpointTokens
from ottla.server.sasl.oauthbearer import MS_PER_S

if TYPE_CHECKING:
    from ottla.server.world import World

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
FINISHED = "sasl.oauthbearer.assertion.file"
PRIVATE_KEY = "sasl.oauthbearer.assertion.private.key.file"
TEMPLATE = "sasl.oauthbearer.assertion.template.file"
#: Claim -> the property that has its value.
CLAIMS = {
    "aud": "sasl.oauthbearer.assertion.claim.aud",
    "iss": "sasl.oauthbearer.assertion.claim.iss",
    "sub": "sasl.oauthbearer.assertion.claim.sub",
}


class JwtBearer(EndpointTokens):
    """The grant with an assertion that this node signs or reads from a file."""

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Raises ConfigError for a file that is not named, not there, or has something else in it."""
        super().__init__(world, values, options)
        self._values = values
        self._passphrase: str | None = values["sasl.oauthbearer.assertion.private.key.passphrase"]
        if values[FINISHED] is None and values[PRIVATE_KEY] is None:
            message = f"{PRIVATE_KEY} is not set, and neither is {FINISHED}"
            raise ConfigError(PRIVATE_KEY, None, "", f"{PRIVATE_KEY}=/path/of/a/key.pem", message=message)
        try:
            self._assertion()
        except ValueError as error:
            name = PRIVATE_KEY if values[FINISHED] is None else FINISHED
            raise ConfigError(name, values[name], str(error), "name a file that this node can read") from None

    def form(self) -> dict[str, str]:
        return {"grant_type": GRANT_TYPE, "assertion": self._assertion()}

    def _assertion(self) -> str:
        """Raises ValueError, with the file but nothing of what is in it."""
        if (path := self._values[FINISHED]) is not None:
            return self._read(path).decode("ascii", "replace").strip()
        header, payload = self._claims(self._world.clock.wall_ms() // MS_PER_S)
        key = self._read(self._values[PRIVATE_KEY])
        try:
            private = load_pem_private_key(key, self._passphrase.encode() if self._passphrase else None)
            if not isinstance(private, RSAPrivateKey | EllipticCurvePrivateKey):
                raise ValueError("another kind of key")
            return jwt.encode(payload, private, header["alg"], headers=header)
        except (ValueError, TypeError, jwt.PyJWTError):
            what = f"{self._values[PRIVATE_KEY]} has no private key for {header['alg']} in PEM"
            raise ValueError(f"{what}, or the passphrase is not its own") from None

    def _claims(self, now_s: int) -> tuple[dict[str, Any], dict[str, Any]]:
        values = self._values
        header: dict[str, Any] = {}
        payload: dict[str, Any] = {claim: values[name] for claim, name in CLAIMS.items() if values[name] is not None}
        if (path := values[TEMPLATE]) is not None:
            try:
                template = json.loads(self._read(path))
                header |= template.get("header", {})
                payload |= template.get("payload", {})
            except (ValueError, TypeError, AttributeError) as error:
                if isinstance(error, FileMissing):
                    raise
                raise ValueError(f'{path} is not of the form {{"header": {{...}}, "payload": {{...}}}}') from None
        header |= {"alg": values["sasl.oauthbearer.assertion.algorithm"].upper(), "typ": "JWT"}
        payload["iat"] = now_s
        payload["exp"] = now_s + values["sasl.oauthbearer.assertion.claim.exp.seconds"]
        payload["nbf"] = now_s - values["sasl.oauthbearer.assertion.claim.nbf.seconds"]
        if values["sasl.oauthbearer.assertion.claim.jti.include"]:
            payload["jti"] = str(uuid.UUID(int=self._world.rng.getrandbits(128), version=4))
        return header, payload

    def _read(self, path: str) -> bytes:
        data = self._world.files.read(path)
        if data is None:
            raise FileMissing(f"there is no file {path}")
        return data


class FileMissing(ValueError):
    """A file of an assertion is not there."""
