"""One blocking connection to a broker: frames, versions, login. Requests can be pipelined: `send` now, `receive` later.

A hostile or broken peer costs at most RESPONSE_BYTES_MAX of memory and the timeout. The bytes of a response are in a buffer
of their own, which the records of a Fetch keep as views.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from struct import Struct
from typing import Any

from ottla.protocol.api import APIS, Api, ApiKey, decode_response_header, encode_request_header, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import info_of
from ottla.server.network.peer_security import LoginRejected
from ottla.spark.client.security import Security
from ottla.spark.errors import ConnectionLost, ConnectorError, name_of

CLIENT_ID = "pyspark-ottla"
CONNECT_SECONDS_MAX = 10.0
#: Kafka's request.timeout.ms.
RESPONSE_SECONDS_MAX = 30.0
#: A Fetch asks for FETCH_BYTES_MAX at most, or for one batch, which Kafka's own limit of a request keeps below 100 MiB.
RESPONSE_BYTES_MAX = 256 * 1024 * 1024
_API_VERSIONS_VERSION = 3
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_LENGTH = Struct(">i")
#: The part of a SASL session after which the connection is replaced, as Java's clients do it.
_RENEWED_AFTER = 0.85


class BlockingConnection:
    """A connection that has agreed on versions and logged in. Raises ConnectionLost when it ends."""

    def __init__(self, host: str, port: int, security: Security) -> None:
        self.where = f"{host}:{port}"
        self._correlation = 0
        self._pending: deque[tuple[int, Api, int]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._renew_at = float("inf")
        try:
            self._socket = self._connect(host, port, security)
            self._agree_on_versions()
            if security.exchange is not None:
                self._log_in(security)
        except OSError as fault:
            self.close()
            raise ConnectionLost(f"{self.where} cannot be reached: {fault}") from None
        except BaseException:
            self.close()
            raise

    def _connect(self, host: str, port: int, security: Security) -> socket.socket:
        found = socket.create_connection((host, port), CONNECT_SECONDS_MAX)
        self._socket = found  # closed also when the handshake fails
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        found.settimeout(RESPONSE_SECONDS_MAX)
        return found if security.tls is None else security.tls.wrap_socket(found, server_hostname=host)

    @property
    def is_due(self) -> bool:
        """Return True if the SASL session ends soon, so that a new connection has to take over."""
        return time.monotonic() > self._renew_at

    def version_of(self, api: Api, version_max: int = 0x7FFF) -> int:
        """Return the highest version that both sides have, up to `version_max`. Raises ConnectorError if there is none."""
        lowest, highest = self._versions.get(api.key, (0, -1))
        version = min(highest, api.max_version, version_max)
        if version < max(lowest, api.min_version):
            raise ConnectorError(
                f"{self.where} has {api.name} in versions {lowest} to {highest}, which this connector does not speak",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    def call(self, request: Any, version_max: int = 0x7FFF) -> Any:
        """Send a request and return its response. No other request may be pending."""
        self.send(request, version_max)
        return self.receive()

    def send(self, request: Any, version_max: int = 0x7FFF) -> None:
        api = APIS[ApiKey(info_of(request.__plain__).key or 0)]
        self._send(request, api, self.version_of(api, version_max))

    def _send(self, request: Any, api: Api, version: int) -> None:
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        pieces: list[Any] = [b"", encode_request_header(api.key, version, self._correlation, CLIENT_ID)]
        encoder(request.__plain__, version)(request, pieces)
        pieces[0] = _LENGTH.pack(sum(len(piece) for piece in pieces))
        try:
            self._socket.sendall(b"".join(pieces))
        except OSError as fault:
            raise self._lost(fault) from None
        self._pending.append((self._correlation, api, version))

    def receive(self) -> Any:
        """Return the response to the oldest request that is pending."""
        correlation, api, version = self._pending.popleft()
        buffer = self._read_frame()
        try:
            flexible = response_header_version(api.key, version) == 1
            found, position = decode_response_header(buffer, 0, len(buffer), flexible)
            if found != correlation:
                raise ProtocolError(f"the response is to request {found}, not {correlation}")
            return decoder(api.response, version)(buffer, position, len(buffer))[0]
        except KafkaError as fault:
            self.close()
            raise ConnectorError(f"{self.where} answered {api.name} with bytes that are no response: {fault}") from None

    def _read_frame(self) -> memoryview:
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            self.close()
            raise ConnectorError(f"{self.where} announces a response of {size} bytes", "is it a Kafka broker?")
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        position = 0
        try:
            while position < size:
                count = self._socket.recv_into(view[position:])
                if not count:
                    raise ConnectionResetError("the broker has closed the connection")
                position += count
        except OSError as fault:
            raise self._lost(fault) from None
        return view

    def _lost(self, fault: OSError) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"connection to {self.where} lost: {fault or type(fault).__name__}")

    def _agree_on_versions(self) -> None:
        api = APIS[ApiKey.API_VERSIONS]
        for version in (_API_VERSIONS_VERSION, 0):
            self._send(ApiVersionsRequest("pyspark-ottla", "1"), api, version)
            (_, _, _), buffer = self._pending.popleft(), self._read_frame()
            # An older broker answers UNSUPPORTED_VERSION in v0, whatever was asked for.
            code = int.from_bytes(buffer[4:6], "big", signed=True)
            if code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if code:
            raise ConnectorError(f"{self.where} answered ApiVersions with {name_of(code)}")
        response = decoder(api.response, version)(buffer, 4, len(buffer))[0]
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _log_in(self, security: Security) -> None:
        assert security.exchange is not None
        shaken = self.call(SaslHandshakeRequest(security.mechanism or ""), 1)
        if shaken.error_code:
            raise ConnectorError(f"{self.where} enables {', '.join(shaken.mechanisms) or 'no mechanism'}")
        exchange = security.exchange()
        try:
            token, lifetime_ms = exchange.answer(b""), 0
            while token is not None:
                response = self.call(SaslAuthenticateRequest(token))
                if response.error_code:
                    raise LoginRejected(response.error_message or name_of(response.error_code))
                lifetime_ms = response.session_lifetime_ms
                token = exchange.answer(bytes(response.auth_bytes))
        except LoginRejected as fault:
            raise ConnectorError(
                f"login at {self.where} by {security.mechanism} failed: {fault}",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None
        if lifetime_ms:
            self._renew_at = time.monotonic() + lifetime_ms / 1000 * _RENEWED_AFTER

    def close(self) -> None:
        """Close the socket. It may be called again."""
        with suppress(OSError, AttributeError):
            self._socket.close()
