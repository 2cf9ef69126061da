"""RenewDelegationToken: prolong a delegation token (KIP-48)."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, int64, message


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = b""
    renew_period_ms: int64 = 0


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
