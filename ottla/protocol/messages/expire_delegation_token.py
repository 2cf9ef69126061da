"""ExpireDelegationToken: shorten or end the life of a delegation token (KIP-48)."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, int64, message


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
