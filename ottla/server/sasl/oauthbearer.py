"""OAUTHBEARER (RFC 7628), the server's side: the client sends a token of an identity provider.

    expecting the token      valid -> Authenticated as the token's subject, until the token expires
                             invalid -> challenge: the error as JSON
    expecting \\x01           SaslFailure with that JSON, which Kafka's clients show

The validator is `SignedTokens` (signed_tokens.py), or `UnsecuredTokens` here, which trusts every client.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ottla.server.config.key import ConfigError
from ottla.server.sasl.exchange import Authenticated, SaslFailure, user

ACKNOWLEDGED = b"\x01"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(f"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
MS_PER_S = 1000
SEGMENTS = 3
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
UNSECURED = "unsecuredLogin"
DEFAULT_LIFETIME_S = 3600


class Token(NamedTuple):
    """The claims of a valid token."""

    subject: str
    expires_ms: int


class TokenRejected(Exception):
    """The token is invalid. The message has the reason, for the log. `scope` is the missing scope, if that is the reason."""

    def __init__(self, reason: str, scope: str = "") -> None:
        super().__init__(reason)
        self.scope = scope


#: Raises TokenRejected.
Validator: TypeAlias = Callable[[str], Token]


class OAuthBearerExchange:
    def __init__(self, validate: Validator) -> None:
        self._validate = validate
        self._error = ""
        self._reason = ""

    def evaluate(self, token: bytes) -> bytes | Authenticated:
        if self._error and token == ACKNOWLEDGED:
            raise SaslFailure(self._reason, self._error)
        self._error = ""
        match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if match is None:
            raise SaslFailure("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
        auth = _AUTH.fullmatch(pairs.get("auth", ""))
        if auth is None or auth["scheme"].lower() != "bearer":
            raise SaslFailure("Invalid OAUTHBEARER client first message: 'auth' is not a bearer token")
        try:
            valid = self._validate(auth["token"])
        except TokenRejected as rejected:
            self._reason = str(rejected)
            error = {"status": "insufficient_scope", "scope": rejected.scope} if rejected.scope else INVALID_TOKEN
            self._error = json.dumps(error, separators=(", ", ":"))
            return self._error.encode()
        authorization_id = match["authzid"] or ""
        if authorization_id and authorization_id != valid.subject:
            message = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from the "
                f"token's principal name ({valid.subject})"
            )
            raise SaslFailure(message, message)
        return Authenticated(user(valid.subject), b"", valid.expires_ms)


INVALID_TOKEN = {"status": "invalid_token"}


class UnsecuredTokens:
    """Accepts tokens without a signature, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler does.

    It is for development only.
    """

    def __init__(self, options: Mapping[str, str], wall_ms: Callable[[], int]) -> None:
        """Take the `options` of the JAAS entry. Raises ConfigError."""
        prefix = "unsecuredValidator"
        self._wall_ms = wall_ms
        self._subject = options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub"
        self._scope = options.get(f"{prefix}ScopeClaimName", "").strip() or "scope"
        self._required = options.get(f"{prefix}RequiredScope", "").split()
        skew = options.get(f"{prefix}AllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal():
            raise ConfigError(
                f"{prefix}AllowableClockSkewMs", skew, "it must be a number of milliseconds, not negative"
            )
        self._skew_ms = int(skew)

    def __call__(self, token: str) -> Token:
        parts = token.split(".")
        if len(parts) != SEGMENTS or parts[2]:
            raise TokenRejected("an unsecured token has three parts, the last of which is empty")
        if json_object(parts[0]).get("alg") != "none":
            raise TokenRejected("an unsecured token has the algorithm none")
        claims = json_object(parts[1])
        expires_ms = check_times(claims, self._wall_ms(), self._skew_ms)
        subject = text_claim(claims, self._subject)
        if missing := [scope for scope in self._required if scope not in scopes(claims, self._scope)]:
            raise TokenRejected(f"the token lacks the scope {missing[0]}", " ".join(self._required))
        return Token(subject, expires_ms)


def json_object(segment: str) -> dict[str, Any]:
    """Decode a part of a token. Raises TokenRejected: the part is no JSON object in base64url."""
    try:
        value = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenRejected("a part of the token is no JSON in base64url") from None
    if not isinstance(value, dict):
        raise TokenRejected("a part of the token is no JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int, *, need_issued: bool = False) -> int:
    """Check the claims exp, nbf and iat, and return the end of the token's validity.

    Raises:
        TokenRejected: the token has expired, is not valid yet, or has no end.
    """
    expires_ms, issued_ms, begins_ms = (_ms_claim(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_ms is None or (need_issued and issued_ms is None):
        raise TokenRejected("Required claim missing: " + ("exp" if expires_ms is None else "iat"))
    if expires_ms + skew_ms <= now_ms:
        raise TokenRejected("the token has expired")
    for start_ms in (issued_ms, begins_ms):
        if start_ms is not None and (start_ms - skew_ms > now_ms or start_ms >= expires_ms):
            raise TokenRejected("the token is not valid yet")
    return expires_ms


def _ms_claim(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise TokenRejected(f"The {name} claim had the incorrect type")
    return int(value * MS_PER_S)


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRejected(f"Required claim missing: {name}")
    return value.strip()


def scopes(claims: Mapping[str, Any], name: str) -> list[str]:
    value = claims.get(name)
    if isinstance(value, str):
        return value.split()
    return [scope for scope in value if isinstance(scope, str)] if isinstance(value, list) else []


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """Return a token for this node's logins, for development: that of Kafka's OAuthBearerUnsecuredLoginCallbackHandler."""
    lifetime_s = int(options.get(f"{UNSECURED}LifetimeSeconds", DEFAULT_LIFETIME_S))
    claims: dict[str, object] = {"exp": now_ms // MS_PER_S + lifetime_s, "iat": now_ms // MS_PER_S}
    for option, text in options.items():
        kind, _, claim = option.partition("_")
        if kind == f"{UNSECURED}StringClaim":
            claims[claim] = text
        elif kind == f"{UNSECURED}NumberClaim":
            claims[claim] = float(text)
        elif kind == f"{UNSECURED}ListClaim":
            claims[claim] = text[1:].split(text[0]) if text[1:] else []
    return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
