"""Requests to an identity provider over HTTP.

They block and run on a worker. This node gets its own OAUTHBEARER tokens with them.

The grant is that of client credentials, or an assertion that this node signs.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ottla.server.config.key import ConfigError, Values
from ottla.server.network.peer_security import LoginRejected
from ottla.server.sasl.oauthbearer import ENDPOINT, MS_PER_S
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

#: The largest response of an identity provider; a key set has a few KB.
ANSWER_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0


class _NoRedirect(HTTPRedirectHandler):
    """Rejects redirects, because secrets must only be sent to the configured host."""

    def redirect_request(self, *args: object) -> None:
        return None


def without_secrets(url: str) -> str:
    """Return the URL for logs, without user, password and query, which may have a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch(
    url: str, body: bytes | None = None, headers: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> bytes:
    """Send a GET, or a POST of `body`, and return the response. Raises OSError unless there is a response with status 200."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise OSError(f"{without_secrets(url)} is no URL of HTTP")
    request = Request(url, body, {"Accept": "application/json", **(headers or {})})
    try:
        with build_opener(_NoRedirect).open(request, timeout=timeout_s) as response:
            data: bytes = response.read(ANSWER_BYTES_MAX + 1)
    except HTTPException as error:
        raise OSError(f"malformed response: {type(error).__name__}") from None
    if len(data) > ANSWER_BYTES_MAX:
        raise OSError(f"the response has more than {ANSWER_BYTES_MAX} bytes")
    return data


CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"


class EndpointTokens(ABC):
    """Gets a token from the identity provider, and keeps it for most of its life."""

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Take the configuration as `values`, and the `options` of the JAAS entry, which may have Kafka's older names."""
        self._world = world
        self._url: str = values[ENDPOINT]
        self._headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._scope: str | None = values["sasl.oauthbearer.scope"] or options.get("scope")
        self._timeout_s = (values["sasl.login.read.timeout.ms"] or TIMEOUT_S * MS_PER_S) / MS_PER_S
        self._part = values["sasl.login.refresh.window.factor"]
        self._token = ""
        self._until_ms = 0

    @abstractmethod
    def form(self) -> dict[str, str]:
        """Return the grant for the token endpoint. Raises ValueError."""

    def _ask(self) -> bytes:
        form = self.form() | ({"scope": self._scope} if self._scope else {})
        return fetch(self._url, urlencode(form).encode(), self._headers, self._timeout_s)

    async def token(self) -> str:
        """Raise LoginRejected."""
        now_ms = self._world.clock.mono_ms()
        if now_ms < self._until_ms:
            return self._token
        try:
            data = await self._world.workers.run(self._ask)
        except (OSError, ValueError) as error:
            raise LoginRejected(f"no token from {without_secrets(self._url)}: {error}") from None
        try:
            answer = json.loads(data)
            self._token = str(answer["access_token"])
            lifetime_s = float(answer.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # The message does not contain the response, because it may have the token.
            raise LoginRejected(f"{without_secrets(self._url)} answered without a token") from None
        self._until_ms = now_ms + int(lifetime_s * MS_PER_S * self._part)
        return self._token


class ClientCredentials(EndpointTokens):
    """The grant with the client's id and secret (RFC 6749)."""

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Raise ConfigError."""
        super().__init__(world, values, options)
        client_id = values[CLIENT_ID] or options.get("clientId")
        secret = values[CLIENT_SECRET] or options.get("clientSecret")
        if not client_id or not secret:
            name = CLIENT_SECRET if client_id else CLIENT_ID
            raise ConfigError(name, None, "", f"{name}=...", message=f"{name} is not set, and {ENDPOINT} is")
        basic = base64.b64encode(f"{quote(client_id, '')}:{quote(secret, '')}".encode()).decode()
        self._headers["Authorization"] = f"Basic {basic}"

    def form(self) -> dict[str, str]:
        return {"grant_type": "client_credentials"}


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
    """The grant with an assertion that this node signs or reads from a file (RFC 7523, KIP-1139).

    For a claim or header, a later source wins over an earlier one:

        sasl.oauthbearer.assertion.claim.aud, .iss and .sub
        sasl.oauthbearer.assertion.template.file, as {"header": {...}, "payload": {...}}
        alg and typ; iat, exp, nbf and, if requested, jti

    sasl.oauthbearer.assertion.file has a finished assertion instead. Files are read for each token, so that they can be replaced.
    """

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Raise ConfigError if a file is not named, does not exist, or has other contents."""
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
        """Raise ValueError with the file's name, but nothing of its contents."""
        if (path := self._values[FINISHED]) is not None:
            return self._read(path).decode("ascii", "replace").strip()
        # Imported late: PyJWT and cryptography take 60 ms to import, and are not installed everywhere.
        import jwt
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        header, payload = self._claims(self._world.clock.wall_ms() // MS_PER_S)
        key = self._read(self._values[PRIVATE_KEY])
        try:
            private = load_pem_private_key(key, self._passphrase.encode() if self._passphrase else None)
            if not isinstance(private, RSAPrivateKey | EllipticCurvePrivateKey):
                raise ValueError("the key is of another kind")
            return jwt.encode(payload, private, header["alg"], headers=header)
        except (ValueError, TypeError, jwt.PyJWTError):
            what = f"{self._values[PRIVATE_KEY]} has no private key for {header['alg']} in PEM"
            raise ValueError(f"{what}, or the passphrase is not its own") from None

    def _claims(self, now_s: int) -> tuple[dict[str, Any], dict[str, Any]]:
        values = self._values
        header: dict[str, Any] = {}
        payload: dict[str, Any] = {claim: values[name] for claim, name in CLAIMS.items() if values[name] is not None}
        if (path := values[TEMPLATE]) is not None:
            data = self._read(path)
            try:
                template = json.loads(data)
                header |= template.get("header", {})
                payload |= template.get("payload", {})
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise ValueError(f'{path} is not of the form {{"header": {{...}}, "payload": {{...}}}}') from None
        header |= {"alg": values["sasl.oauthbearer.assertion.algorithm"].upper(), "typ": "JWT"}
        payload["iat"] = now_s
        payload["exp"] = now_s + values["sasl.oauthbearer.assertion.claim.exp.seconds"]
        payload["nbf"] = now_s - values["sasl.oauthbearer.assertion.claim.nbf.seconds"]
        if values["sasl.oauthbearer.assertion.claim.jti.include"]:
            payload["jti"] = str(uuid.UUID(int=self._world.rng.getrandbits(128), version=4))
        return header, payload

    def _read(self, path: str) -> bytes:
        try:
            data = self._world.files.read(path)
        except StorageFailure as failure:
            raise ValueError(str(failure)) from None
        if data is None:
            raise ValueError(f"there is no file {path}")
        return data
