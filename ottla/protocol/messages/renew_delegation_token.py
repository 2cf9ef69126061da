"""RenewDelegationToken: prolong a delegation token (KIP-48)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64


@api_message(39)
class RenewDelegationTokenRequest:
    hmac: bytes = b""
    renew_period_ms: int64 = 0


@api_message(39)
class RenewDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
