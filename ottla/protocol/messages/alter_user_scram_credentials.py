"""AlterUserScramCredentials: set or delete users' SCRAM credentials (KIP-554)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class ScramCredentialDeletion:
    name: str = ""
    mechanism: int8 = 0


@struct
class ScramCredentialUpsertion:
    name: str = ""
    mechanism: int8 = 0
    iterations: int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


@api_message(51)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = v(default=[])
    upsertions: list[ScramCredentialUpsertion] = v(default=[])


@struct
class AlterUserScramCredentialsResult:
    user: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


@api_message(51)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = v(default=[])
