"""DescribeDelegationToken: list delegation tokens (KIP-48).

v3 adds the requester (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TokenPrincipal
from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(41)
class DescribeDelegationTokenRequest:
    owners: list[TokenPrincipal] | None = v(default=[])


@struct
class DescribedDelegationToken:
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = v("3+", default="")
    token_requester_principal_name: str = v("3+", default="")
    issue_timestamp: int64 = 0
    expiry_timestamp: int64 = 0
    max_timestamp: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[TokenPrincipal] = v(default=[])


@api_message(41)
class DescribeDelegationTokenResponse:
    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = v(default=[])
    throttle_time_ms: int32 = 0
