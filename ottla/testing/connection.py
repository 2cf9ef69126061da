"""A blocking connection to one node for the state of a cluster, because tests must not need an event loop for it."""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
from types import TracebackType
from typing import Any

from ottla.local.secure_files import ADMIN, MECHANISM, NODE_MECHANISM, SecureFiles
from ottla.protocol.api import APIS, Api, ApiKey, decode_response_header, encode_request_header, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.primitives import Pieces
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient

CLIENT_ID = "ottla.testing"
#: Against hanging only: a node that is alive answers at once, but on a busy machine not always within seconds.
TIMEOUT_SECONDS = 30.0
SASL_HANDSHAKE_VERSION, SASL_AUTHENTICATE_VERSION = 1, 2


class ClusterConnection:
    """Use it as a context manager. Raises OSError where the node cannot be reached, or does not accept the login."""

    def __init__(
        self, host: str, port: int, secure: SecureFiles | None, user: str = ADMIN, mechanism: str = MECHANISM
    ) -> None:
        self._socket: socket.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        if secure is not None:
            context = ssl.create_default_context(cafile=secure.ca)
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._log_in(mechanism, user, secure.passwords[user])

    def __enter__(self) -> ClusterConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def request(self, request: object, api_key: ApiKey, version: int) -> Any:
        """Return the response."""
        api: Api = APIS[api_key]
        parts: Pieces = [encode_request_header(api_key, version, 1, CLIENT_ID)]
        encoder(type(request), version)(request, parts)
        frame = b"".join(parts)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        data = self._read(size)
        _, pos = decode_response_header(data, 0, size, response_header_version(api_key, version) > 0)
        return decoder(api.response, version)(data, pos, size)[0]

    def _log_in(self, mechanism: str, user: str, password: str) -> None:
        handshake = SaslHandshakeRequest(mechanism=mechanism)
        offered = self.request(handshake, ApiKey.SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION)
        if offered.error_code != ErrorCode.NONE:
            raise ConnectionError(f"{mechanism} is not enabled there, but {', '.join(offered.mechanisms)}")
        exchange: ClientExchange = (
            PlainClient(user, password)
            if mechanism == NODE_MECHANISM
            else ScramClient(mechanism, user, password, secrets.token_hex(16))
        )
        token = exchange.answer(b"")
        while token is not None:
            answer = self.request(
                SaslAuthenticateRequest(auth_bytes=token), ApiKey.SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION
            )
            if answer.error_code != ErrorCode.NONE:
                raise ConnectionError(answer.error_message)
            token = exchange.answer(bytes(answer.auth_bytes))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the node closed the connection")
            data += piece
        return data
