"""SaslHandshake (17) and SaslAuthenticate (36) on a connection whose login is complete, or whose listener requires none
(`server/sasl/login.py`).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext


def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin another login on an authenticated connection (KIP-368)."""
    connection = context.connection
    login = connection.login if isinstance(connection, Connection) else None
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return login.renew(request, context.api_version)


def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Reject a SaslAuthenticate without a SaslHandshake before it."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
