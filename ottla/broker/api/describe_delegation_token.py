"""DescribeDelegationToken (41): delegation tokens with their secrets.

A token is shown to its owner, requester and renewers, to clients that may DESCRIBE it, and to those that may DESCRIBE_TOKENS of
its owner (KIP-373).

Errors:
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED  the client has logged in by a token, or not at all
    DELEGATION_TOKEN_AUTH_DISABLED        the node has no delegation.token.secret.key
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.delegation_tokens import DelegationToken
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.shared_structs import TokenPrincipal
from ottla.server.authorization.operations import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from ottla.server.network.context import RequestContext
from ottla.server.sasl.delegation_tokens import hmac_of, may_handle_tokens, principal_of

#: Earlier responses have no fields for the requester (KIP-373).
REQUESTER_SINCE = 3


def handle(
    broker: BrokerComponents, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    key = broker.configs["delegation.token.secret.key"]
    if not may_handle_tokens(context.connection.principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if key is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    tokens = broker.metadata.image.delegation_tokens.tokens.values()
    seen = [token for token in tokens if _is_asked_for(token, owners) and _may_see(broker, context, token)]
    described = [_described(token, key) for token in sorted(seen, key=lambda token: token.token_id)]
    if context.api_version < REQUESTER_SINCE:
        for each in described:
            each.token_requester_principal_type = each.token_requester_principal_name = ""
    return DescribeDelegationTokenResponse(tokens=described)


def _is_asked_for(token: DelegationToken, owners: set[str] | None) -> bool:
    return owners is None or not owners.isdisjoint(token.seen_by)


def _may_see(broker: BrokerComponents, context: RequestContext, token: DelegationToken) -> bool:
    allows = broker.authorizer.allows
    return (
        str(context.connection.principal) in token.seen_by
        or allows(context, DESCRIBE, DELEGATION_TOKEN, token.token_id)
        or allows(context, DESCRIBE_TOKENS, USER, token.owner)
    )


def _described(token: DelegationToken, key: str) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    return DescribedDelegationToken(
        owner.type,
        owner.name,
        requester.type,
        requester.name,
        token.issue_timestamp_ms,
        token.expiration_timestamp_ms,
        token.max_timestamp_ms,
        token.token_id,
        hmac_of(key, token.token_id),
        [TokenPrincipal(*principal_of(renewer)[:2]) for renewer in token.renewers],
    )
