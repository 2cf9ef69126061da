"""Delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.messages.shared_structs import TokenPrincipal

#: The broker's delegation.token.max.lifetime.ms or delegation.token.expiry.time.ms.
BROKER_DEFAULT_MS = -1
#: ExpireDelegationToken removes the token at once.
NOW_MS = -1


def principal(text: str) -> TokenPrincipal:
    """Return the principal of "User:alice", or "alice"."""
    kind, colon, name = text.partition(":")
    return TokenPrincipal(kind, name) if colon else TokenPrincipal("User", text)


async def create_token(
    cluster: ClusterClient, owner: str | None, renewers: Iterable[str], lifetime_ms: int = BROKER_DEFAULT_MS
) -> CreateDelegationTokenResponse:
    """Create a token for the user of the connection, or for another `owner`."""
    of = TokenPrincipal("", "") if owner is None else principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=of.principal_type or None,
        owner_principal_name=of.principal_name or None,
        renewers=[principal(each) for each in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    cluster.doing = "creating a delegation token"
    response: CreateDelegationTokenResponse = await cluster.request(request)
    check("delegation token", response.error_code)
    return response


async def renew_token(cluster: ClusterClient, hmac: bytes, period_ms: int = BROKER_DEFAULT_MS) -> int:
    """Move the expiry of a token. Return its new time, in milliseconds since the epoch."""
    cluster.doing = "renewing a delegation token"
    response: RenewDelegationTokenResponse = await cluster.request(RenewDelegationTokenRequest(hmac, period_ms))
    check("delegation token", response.error_code)
    return response.expiry_timestamp_ms


async def expire_token(cluster: ClusterClient, hmac: bytes, period_ms: int = NOW_MS) -> int:
    """End a token, at once or after a period. Return the time of its end, in milliseconds since the epoch."""
    cluster.doing = "expiring a delegation token"
    response: ExpireDelegationTokenResponse = await cluster.request(ExpireDelegationTokenRequest(hmac, period_ms))
    check("delegation token", response.error_code)
    return response.expiry_timestamp_ms


async def describe_tokens(
    cluster: ClusterClient, owners: Iterable[str] | None = None
) -> list[DescribedDelegationToken]:
    """Return the tokens that the user may see: of these owners, of all for None."""
    wanted = None if owners is None else [principal(each) for each in owners]
    cluster.doing = "listing the delegation tokens"
    response: DescribeDelegationTokenResponse = await cluster.request(DescribeDelegationTokenRequest(wanted))
    check("delegation tokens", response.error_code)
    return response.tokens
