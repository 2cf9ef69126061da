"""SaslHandshake (17) of a connection that is authenticated, or whose listener does not ask for it (`server/sasl/login.py`)."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    connection = context.connection
    login = connection.login if isinstance(connection, Connection) else None
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return login.renew(request, context.api_version)
