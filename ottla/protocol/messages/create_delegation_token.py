"""CreateDelegationToken: create a delegation token (KIP-48).

v3 adds owner and requester (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TokenPrincipal
from ottla.protocol.schema import api_message, int16, int32, int64, v


@api_message(38)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = v("3+", default="")
    owner_principal_name: str | None = v("3+", default="")
    renewers: list[TokenPrincipal] = v(default=[])
    max_lifetime_ms: int64 = 0


@api_message(38)
class CreateDelegationTokenResponse:
    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = v("3+", default="")
    token_requester_principal_name: str = v("3+", default="")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0
