"""SaslAuthenticate: one step of the SASL exchange (KIP-152).

v1 adds the lifetime of the session (KIP-368).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int64, v


@api_message(36)
class SaslAuthenticateRequest:
    auth_bytes: bytes = b""


@api_message(36)
class SaslAuthenticateResponse:
    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = v("1+", default=0, ignorable=True)
