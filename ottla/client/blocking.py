"""The blocking loop of a client's connection, on the core in ottla/server/network/wire.py: for processes without an event loop.

Spark's processes and tests have none. Requests can be pipelined: `send` now, `receive` later. A hostile or broken peer costs at
most `response_bytes_max` of memory and the timeout. The bytes of a response are in a buffer of their own, which the records of
a Fetch keep as views.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from ottla.protocol.api import APIS, ApiKey
from ottla.server.network.peer_security import LoginRejected
from ottla.server.network.wire import (
    ANY_VERSION,
    RENEWED_AFTER,
    RESPONSE_BYTES_MAX,
    Ask,
    ClientWire,
    RequestLost,
    SecurityRejected,
    Steps,
    UnreadableResponse,
    agree_on_versions,
    api_of,
)
from ottla.server.sasl.client_exchange import ClientExchange, authenticate, choose_mechanism

T = TypeVar("T")

CONNECT_SECONDS_MAX = 10.0
#: Kafka's request.timeout.ms.
RESPONSE_SECONDS_MAX = 30.0
SOFTWARE_VERSION = "1"
_SIZE = Struct(">i")


class BlockingLogin(NamedTuple):
    """A SASL mechanism, and a function that makes an exchange: each login needs a new one."""

    mechanism: str
    exchange: Callable[[], ClientExchange]


class BlockingSecurity(NamedTuple):
    """TLS and login of blocking connections. A field is None where the listener has no TLS, or no login."""

    tls: ssl.SSLContext | None = None
    login: BlockingLogin | None = None


class BlockingConnection:
    """A connection that has agreed on versions and logged in. Not safe to use from several threads."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        security: BlockingSecurity,
        *,
        receive_buffer_bytes: int | None = None,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        software: str = "",
    ) -> None:
        """Connect. `receive_buffer_bytes` is the socket's buffer, None for the system's. `software` is the client id, if it is not given.

        Raises:
            SecurityRejected: one side does not accept the other's login.
            AnotherProtocol, UnreadableResponse: the peer is no Kafka listener, or too old.
            OSError: it cannot be reached, or closes the connection; TLS fails.
        """
        self.where = f"{host}:{port}"
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._wire: ClientWire[None] = ClientWire(self.where)
        self._renew_at = float("inf")
        self._socket = socket.create_connection((host, port), CONNECT_SECONDS_MAX)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes is not None:
                with suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self._socket.settimeout(RESPONSE_SECONDS_MAX)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            self._carry_out(agree_on_versions(self._wire, software or client_id, SOFTWARE_VERSION))
            if security.login is not None:
                self._log_in(security.login)
        except BaseException:
            self.close()
            raise

    @property
    def is_due(self) -> bool:
        """Return True if the SASL session ends soon, so that a new connection has to take over."""
        return time.monotonic() > self._renew_at

    def call(self, request: object, version: int | None = None, version_max: int = ANY_VERSION) -> Any:
        """Send a request and return its response; no other request may be in flight.

        Versions and errors are those of `send` and `receive`.
        """
        self.send(request, version, version_max)
        return self.receive()

    def send(self, request: object, version: int | None = None, version_max: int = ANY_VERSION) -> None:
        """Send a request in `version`. None means the highest version up to `version_max` that both sides have.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, nothing was sent.
            UnsupportedVersion: the version cannot hold the request; nothing was sent.
            RequestLost: the connection is lost.
        """
        self._send(request, self._wire.agreed(api_of(request), version, version_max))

    def receive(self) -> Any:
        """Return the response to the oldest request that is in flight.

        Raises:
            RequestLost: the connection is lost, or the response did not come in time.
            AnotherProtocol, UnreadableResponse: it is no response. The connection is closed.
        """
        sent, frame = self._wire.answered(), self._read_frame()
        try:
            return self._wire.response(sent, frame, 0, len(frame))
        except UnreadableResponse:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket. It may be called again."""
        with suppress(OSError):
            self._socket.close()

    def _send(self, request: object, version: int) -> None:
        pieces = self._wire.request(self._client_id, request, api_of(request), version, None)
        try:
            self._socket.sendall(b"".join(pieces))
        except OSError as fault:
            raise self._lost(fault) from None

    def _read_frame(self) -> memoryview:
        start = self._read(_SIZE.size)
        (size,) = _SIZE.unpack(start)
        if not 0 <= size <= self._response_bytes_max:
            self.close()
            raise self._wire.another_protocol(bytes(start), size)
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

    def _lost(self, fault: OSError) -> RequestLost:
        self.close()
        return RequestLost(f"connection to {self.where} lost: {fault or type(fault).__name__}")

    def _carry_out(self, steps: Steps[T]) -> T:
        done: Any = None
        while True:
            try:
                step = steps.send(done)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Ask):
                self._send(step.request, step.version)
                done = self.receive()
            else:
                done = step.run(step.argument)

    def _log_in(self, login: BlockingLogin) -> None:
        version = self._wire.agreed(APIS[ApiKey.SASL_AUTHENTICATE])
        try:
            self._carry_out(choose_mechanism(login.mechanism))
            lifetime_ms = self._carry_out(authenticate(login.exchange(), version))
        except LoginRejected as fault:
            raise SecurityRejected(f"login at {self.where} by {login.mechanism} failed: {fault}") from None
        if lifetime_ms:
            self._renew_at = time.monotonic() + lifetime_ms / 1000 * RENEWED_AFTER
