"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken: for clients that are authenticated, but not by a token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.delegation_tokens import create, expire, renew
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from ottla.server.authorization.operations import CREATE_TOKENS, USER
from ottla.server.network.context import Reply, RequestContext
from ottla.server.principal import Principal
from ottla.server.sasl.delegation_tokens import TokensByHmac, may_handle_tokens

T = TypeVar("T")
RequestT = TypeVar("RequestT")
#: DelegationTokenManager.ErrorTimestamp.
NO_TIMESTAMP = -1
#: Earlier responses of CreateDelegationToken have no fields for the requester (KIP-373).
REQUESTER_SINCE = 3


def handle_create(
    components: ControllerComponents, request: CreateDelegationTokenRequest, context: RequestContext
) -> Reply[CreateDelegationTokenResponse]:
    requester = context.connection.principal._replace(token_authenticated=False)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)

    def failed(error: KafkaError) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(
            error_code=error.code,
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=NO_TIMESTAMP,
            expiry_timestamp_ms=NO_TIMESTAMP,
            max_timestamp_ms=NO_TIMESTAMP,
        )

    def write() -> Reply[CreateDelegationTokenResponse]:
        if owner != requester and not components.authorizer.allows(context, CREATE_TOKENS, USER, str(owner)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        _check_enabled(components)
        world = components.world
        return components.controller.write(
            lambda state: create(state, request, owner, requester, world.clock.wall_ms(), world.rng)
        )

    response = _answered(context, write, failed)
    return response if context.api_version >= REQUESTER_SINCE else response.then(_without_requester)


def _without_requester(response: CreateDelegationTokenResponse) -> CreateDelegationTokenResponse:
    response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response


def handle_describe(
    components: ControllerComponents, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Kafka's controllers list this API without a handler for it, and answer UNKNOWN_SERVER_ERROR (4.3.1)."""
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "brokers describe delegation tokens")


def _change_expiry(
    decide: Callable[[ControlState, RequestT, Principal, TokensByHmac, int], Outcome[T]],
    response: Callable[[int, int], T],
    components: ControllerComponents,
    request: RequestT,
    context: RequestContext,
) -> Reply[T]:
    """Write the decision; an error is answered by `response` with its code and no timestamp."""

    def write() -> Reply[T]:
        tokens = _check_enabled(components)
        now_ms, principal = components.world.clock.wall_ms(), context.connection.principal
        return components.controller.write(lambda state: decide(state, request, principal, tokens, now_ms))

    return _answered(context, write, lambda error: response(error.code, NO_TIMESTAMP))


handle_renew = partial(_change_expiry, renew, RenewDelegationTokenResponse)
handle_expire = partial(_change_expiry, expire, ExpireDelegationTokenResponse)


def _check_enabled(components: ControllerComponents) -> TokensByHmac:
    if components.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return components.tokens


def _answered(context: RequestContext, write: Callable[[], Reply[T]], failed: Callable[[KafkaError], T]) -> Reply[T]:
    """Return the response; NOT_CONTROLLER stays an error, so that the broker that has forwarded the request finds the active controller."""

    def on_error(error: KafkaError) -> T:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise error
        return failed(error)

    try:
        if not may_handle_tokens(context.connection.principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        return write().otherwise(on_error)
    except KafkaError as error:
        reply: Reply[T] = Reply()
        reply.complete(on_error(error))
        return reply
