"""Unsecured tokens with which this node logs in by OAUTHBEARER, for development."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from ottla.server.sasl.oauthbearer import MS_PER_S

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
UNSECURED = "unsecuredLogin"
DEFAULT_LIFETIME_S = 3600


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """Returns the token of Kafka's OAuthBearerUnsecuredLoginCallbackHandler."""
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
