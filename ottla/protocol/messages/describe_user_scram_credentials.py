"""DescribeUserScramCredentials: which SCRAM credentials users have (KIP-554)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class UserName:
    name: str = ""


@api_message(50)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = v(default=[])


@struct
class CredentialInfo:
    mechanism: int8 = 0
    iterations: int32 = 0


@struct
class DescribeUserScramCredentialsResult:
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = v(default=[])


@api_message(50)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = v(default=[])
