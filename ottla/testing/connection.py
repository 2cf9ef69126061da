"""A blocking connection to one node, which reads the state of a cluster. Tests must not need an event loop for it."""

from __future__ import annotations

import secrets
import ssl
from types import TracebackType
from typing import Any

from ottla.client.blocking import BlockingConnection, BlockingLogin, BlockingSecurity
from ottla.local.secure_files import ADMIN, MECHANISM, NODE_MECHANISM, SecureFiles
from ottla.protocol.api import ApiKey
from ottla.protocol.releases import NODE_SOFTWARE
from ottla.server.network.wire import api_of
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient

CLIENT_ID = "ottla.testing"


class ClusterConnection:
    """Use it as a context manager. Raises OSError if the node cannot be reached, or does not accept the login."""

    def __init__(
        self, host: str, port: int, secure: SecureFiles | None, user: str = ADMIN, mechanism: str = MECHANISM
    ) -> None:
        security = BlockingSecurity() if secure is None else _security(secure, user, mechanism)
        self._connection = BlockingConnection(host, port, CLIENT_ID, security, software=NODE_SOFTWARE)

    def __enter__(self) -> ClusterConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def request(self, request: object, api_key: ApiKey, version: int) -> Any:
        """Return the response."""
        assert api_of(request).key == api_key
        return self._connection.call(request, version)


def _security(secure: SecureFiles, user: str, mechanism: str) -> BlockingSecurity:
    password = secure.passwords[user]

    def exchange() -> ClientExchange:
        if mechanism == NODE_MECHANISM:
            return PlainClient(user, password)
        return ScramClient(mechanism, user, password, secrets.token_hex(16))

    return BlockingSecurity(ssl.create_default_context(cafile=secure.ca), BlockingLogin(mechanism, exchange))
