"""ExpireDelegationToken: shorten or end the life of a delegation token (KIP-48)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64


@api_message(40)
class ExpireDelegationTokenRequest:
    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


@api_message(40)
class ExpireDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
