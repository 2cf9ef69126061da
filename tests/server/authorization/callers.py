"""Request contexts with a given principal and host, for tests of an authorizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.server.network.context import RequestContext
from ottla.server.principal import ANONYMOUS, Principal


def caller(principal: Principal = ANONYMOUS, host: str = "10.0.0.1", api_key: int = ApiKey.PRODUCE) -> RequestContext:
    peer: Any = SimpleNamespace(principal=principal, peer_host=host, id="test", listener_name="PLAINTEXT")
    return RequestContext(api_key, 0, "test", peer)
