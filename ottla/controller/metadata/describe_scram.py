"""DescribeUserScramCredentials (50): which mechanisms users have credentials for, and their iterations; never the keys (KIP-554).

No users asked for means all of them. A user asked for twice, or unknown, has an error of its own.
"""

from __future__ import annotations

from collections import Counter

from ottla.controller.metadata.scram import ScramImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def describe_scram_credentials(
    image: ScramImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(image.credentials.items()):
        known.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
    asked = Counter(user.name for user in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        results=[_describe(user, times, known.get(user)) for user, times in asked.items()]
    )


def _describe(user: str, times: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(user, ErrorCode.NONE, None, infos)
