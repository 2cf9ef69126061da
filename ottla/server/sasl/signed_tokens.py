"""Validation of signed tokens (JWT, RFC 7519) with the public keys of an identity provider, as Kafka's BrokerJwtValidator.

PyJWT and `cryptography` verify the signature. Only algorithms with a public key are accepted: `none`, and HMAC with a public key as
its secret, are known attacks on validators.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import jwt
from jwt.types import Options

from ottla.server.clock import pause
from ottla.server.sasl.identity_provider import fetch, without_secrets
from ottla.server.sasl.oauthbearer import Token, TokenRejected, check_times, text_claim
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Times are checked by `check_times` instead, with the node's clock.
OPTIONS: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
#: The most keys that are tried for a token that does not name its key.
KEYS_TRIED_MAX = 8

Keys = Mapping[str | None, jwt.PyJWK]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected claims. An `issuer` of None and empty `audiences` accept any."""

    issuer: str | None
    audiences: Sequence[str]
    skew_ms: int
    subject_claim: str


class SignedTokens:
    def __init__(
        self,
        keys: Callable[[], Keys],
        missing: Callable[[], None],
        expected: Expected,
        wall_ms: Callable[[], int],
    ) -> None:
        """Take `missing`, which is called if a key is not among `keys`: the provider may have a new one."""
        self._keys = keys
        self._missing = missing
        self._expected = expected
        self._wall_ms = wall_ms

    def __call__(self, token: str) -> Token:
        claims = self._verified(token)
        expected = self._expected
        expires_ms = check_times(claims, self._wall_ms(), expected.skew_ms, need_issued=True)
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise TokenRejected("the token has another issuer")
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if expected.audiences and not any(each in expected.audiences for each in named):
            raise TokenRejected("the token has another audience")
        return Token(text_claim(claims, expected.subject_claim), expires_ms)

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise TokenRejected("the token's algorithm is not accepted")
            for key in self._candidates(header.get("kid"), header["alg"]):
                try:
                    claims: dict[str, Any] = jwt.decode(token, key.key, algorithms=[header["alg"]], options=OPTIONS)
                except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
                    continue
                return claims
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRejected(f"the token cannot be read: {type(error).__name__}") from None
        raise TokenRejected("no key of the identity provider verifies the token's signature")

    def _candidates(self, key_id: str | None, algorithm: str) -> list[jwt.PyJWK]:
        keys = self._keys()
        if key_id is None:
            return [key for key in keys.values() if fits(key, algorithm)][:KEYS_TRIED_MAX]
        found = keys.get(key_id)
        if found is None:
            self._missing()
            raise TokenRejected("the identity provider has no key of the token's id")
        return [found] if fits(found, algorithm) else []


def fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Return True if the key has the algorithm's kind."""
    kind = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[algorithm[:2]]
    return bool(key.key_type == kind)


def read_keys(data: bytes) -> Keys:
    """Read a JSON Web Key Set (RFC 7517); keys of unknown kinds are left out.

    Raises:
        ValueError: the text is no key set, or has no usable key.
    """
    try:
        keys = jwt.PyJWKSet.from_json(data.decode()).keys
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no key set: {type(error).__name__}") from None
    return {key.key_id: key for key in keys if key.key_type in ("RSA", "EC", "OKP")}


#: A token with an unknown key id causes an early refresh. This interval limits how often clients can cause it.
EARLY_REFRESH_INTERVAL_MS = 10_000
#: The time between two log lines while keys cannot be fetched.
REPEAT_MS = 600_000


class KeySet:
    """The keys for validation, from a file or a URL.

    A task of the node fetches them, and refreshes them regularly (`sasl.oauthbearer.jwks.endpoint.refresh.ms`).
    """

    def __init__(self, world: World, url: str, refresh_ms: int, retry_ms: int, retry_ms_max: int) -> None:
        self._world = world
        self._url = url
        self._shown_url = without_secrets(url)
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_ms_max = retry_ms_max
        self._fetched_ms = -EARLY_REFRESH_INTERVAL_MS
        self._early = asyncio.Event()
        self._said, self._said_ms = "", 0
        self.keys: Keys = {}
        world.spawn(self._run(), f"keys of {self._shown_url}")

    def missing(self) -> None:
        """Request an early refresh, because a token names an unknown key."""
        if self._world.clock.mono_ms() - self._fetched_ms >= EARLY_REFRESH_INTERVAL_MS:
            self._early.set()

    async def _run(self) -> None:
        retry_ms = self._retry_ms
        while True:
            self._early.clear()
            self._fetched_ms = self._world.clock.mono_ms()
            try:
                self.keys = read_keys(await self._read())
            except (OSError, ValueError, StorageFailure) as error:
                self._say(str(error))
                await pause(self._world.clock, retry_ms)
                retry_ms = min(2 * retry_ms, self._retry_ms_max)
                continue
            log.info("%d keys fetched of %s", len(self.keys), self._shown_url)
            self._said = ""
            retry_ms = self._retry_ms
            await self._wait()

    def _say(self, why: str) -> None:
        """Log a reason. A new reason is logged at once, the same one only after a while."""
        now_ms = self._world.clock.mono_ms()
        if why != self._said or now_ms - self._said_ms >= REPEAT_MS:
            self._said, self._said_ms = why, now_ms
            log.error("Keys of %s could not be fetched, those that are known stay: %s", self._shown_url, why)

    async def _wait(self) -> None:
        """Wait until the keys are due for a refresh, or a key is missing."""
        timer = self._world.clock.call_later(self._refresh_ms, self._early.set)
        try:
            await self._early.wait()
        finally:
            timer.cancel()

    async def _read(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme != "file":
            return await self._world.workers.run(fetch, self._url)
        data = self._world.files.read(url2pathname(parts.path))
        if data is None:
            raise ValueError("there is no such file")
        return data
