"""From a client's properties file, as Kafka's own clients and tools have it, to how its connections are secured."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.errors import ConfigError
from ottla.server.network.peer_security import PLAINTEXT, ClientTls, PeerSecurity
from ottla.storage.files import Files

PROTOCOL = "security.protocol"


def client_security(properties: Mapping[str, str], files: Files) -> PeerSecurity:
    """Raises ConfigError."""
    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    if protocol != "SSL":
        raise ConfigError(PROTOCOL, protocol, "it is not supported by this tool", "PLAINTEXT or SSL")
    # Not at the top: a command without TLS starts faster.
    from ottla.server.security.tls.contexts import client_context
    from ottla.server.security.tls.properties import TlsProperties

    values = {
        name: key.parse(properties[name]) if name in properties else key.default
        for name, key in BROKER_CONFIGS.items()
        if name.startswith("ssl.")
    }
    return PeerSecurity(ClientTls(client_context(TlsProperties(values, files.read)).context))
