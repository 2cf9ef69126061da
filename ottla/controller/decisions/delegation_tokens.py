"""Delegation tokens (KIP-48, KIP-900): created for an owner, renewed and expired by the owner or a renewer, removed after their end."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.metadata.delegation_tokens import DelegationToken, record_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord, RemoveDelegationTokenRecord
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.server.config.key import LONG_MAX
from ottla.server.principal import Principal
from ottla.server.sasl.delegation_tokens import TokensByHmac, hmac_of

MV_DELEGATION_TOKENS = 14
USER = "User"
#: The limit of tokens that one decision removes; the next ones remove the rest.
EXPIRED_PER_TURN = 1_000


def create(
    state: ControlState,
    request: CreateDelegationTokenRequest,
    owner: Principal,
    requester: Principal,
    now_ms: int,
    rng: Random,
) -> Outcome[CreateDelegationTokenResponse]:
    _check_version(state)
    settings = state.settings.delegation_tokens
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = min(LONG_MAX, now_ms + lifetime_ms)
    token = DelegationToken(
        owner=str(owner),
        requester=str(requester),
        renewers=tuple(f"{USER}:{renewer.principal_name}" for renewer in request.renewers),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=max_ms,
        expiration_timestamp_ms=min(max_ms, now_ms + settings.expiry_ms),
        token_id=uuid_to_str(new_uuid(rng)),
    )
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=token.expiration_timestamp_ms,
        max_timestamp_ms=max_ms,
        token_id=token.token_id,
        hmac=hmac_of(settings.secret_key, token.token_id),
    )
    return Outcome([record_of(token)], response)


def renew(
    state: ControlState, request: RenewDelegationTokenRequest, principal: Principal, tokens: TokensByHmac, now_ms: int
) -> Outcome[RenewDelegationTokenResponse]:
    token = _token(state, tokens, bytes(request.hmac))
    _check_not_expired(token, now_ms)
    _check_renewer(token, principal)
    period_ms = state.settings.delegation_tokens.expiry_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    until_ms = min(token.max_timestamp_ms, now_ms + period_ms)
    record = record_of(replace(token, expiration_timestamp_ms=until_ms))
    return Outcome([record], RenewDelegationTokenResponse(expiry_timestamp_ms=until_ms))


def expire(
    state: ControlState, request: ExpireDelegationTokenRequest, principal: Principal, tokens: TokensByHmac, now_ms: int
) -> Outcome[ExpireDelegationTokenResponse]:
    """Set when a token expires. A negative period removes it at once."""
    token = _token(state, tokens, bytes(request.hmac))
    _check_renewer(token, principal)
    if request.expiry_time_period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Outcome([removed], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    _check_not_expired(token, now_ms)
    until_ms = min(token.max_timestamp_ms, now_ms + request.expiry_time_period_ms)
    record = record_of(replace(token, expiration_timestamp_ms=until_ms))
    return Outcome([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=until_ms))


def remove_expired(state: ControlState, now_ms: int) -> Outcome[bool]:
    """Decide to remove expired tokens. The response is True if there are more of them."""
    expired = [
        token.token_id
        for token in state.image.delegation_tokens.tokens.values()
        if token.expiration_timestamp_ms < now_ms
    ]
    records: list[MetadataRecord] = [
        RemoveDelegationTokenRecord(token_id=token_id) for token_id in islice(sorted(expired), EXPIRED_PER_TURN)
    ]
    return Outcome(records, len(expired) > EXPIRED_PER_TURN)


def _check_version(state: ControlState) -> None:
    if state.image.features.metadata_version < MV_DELEGATION_TOKENS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _token(state: ControlState, tokens: TokensByHmac, secret: bytes) -> DelegationToken:
    _check_version(state)
    known = state.image.delegation_tokens.tokens
    token_id = tokens.find(known, secret)
    if token_id is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return known[token_id]


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.max_timestamp_ms < now_ms or token.expiration_timestamp_ms < now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, principal: Principal) -> None:
    if str(principal) not in (token.owner, *token.renewers):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
