"""TLS and login of a blocking connection, by the properties of Kafka's own clients with the prefix `kafka.`.

PLAIN, SCRAM and client certificates are supported. GSSAPI and OAUTHBEARER, whose tokens come from other servers, are not.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.client.blocking import BlockingLogin, BlockingSecurity
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient
from ottla.server.sasl.jaas import JaasError, read_module
from ottla.spark.errors import ConnectorError

PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_NONCE_BYTES = 16


def security_of(properties: Mapping[str, str]) -> BlockingSecurity:
    """Raise ConnectorError if a property is missing, wrong or not supported. No message has a secret."""
    protocol = properties.get(PROTOCOL, "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConnectorError(f"kafka.{PROTOCOL} is {protocol}", f"it is one of {', '.join(PROTOCOLS)}")
    tls = _context(properties) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return BlockingSecurity(tls)
    mechanism = properties.get(MECHANISM, "GSSAPI")
    if mechanism not in SERVED:
        raise ConnectorError(
            f"kafka.{MECHANISM} {mechanism} is not served", f"this connector serves {', '.join(SERVED)}"
        )
    try:
        options = read_module(properties.get(JAAS, "")).values
    except JaasError as fault:
        raise ConnectorError(f"kafka.{JAAS} cannot be read: {fault}", "it has one login module and ends in ;") from None
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise ConnectorError(f"kafka.{JAAS} has no username or no password")
    is_token = options.get("tokenauth", "").lower() == "true"

    def exchange() -> ClientExchange:
        if mechanism == "PLAIN":
            return PlainClient(user, password)
        return ScramClient(mechanism, user, password, secrets.token_hex(_NONCE_BYTES), token=is_token)

    return BlockingSecurity(tls, BlockingLogin(mechanism, exchange))


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    # Imported late: a plaintext connection does not need the libraries, and each of Spark's processes would spend time on them.
    from ottla.server.config.key import ConfigError
    from ottla.server.config.tables.security import SSL
    from ottla.server.tls.contexts import client_context
    from ottla.server.tls.stores import TlsProperties

    try:
        values = {name: key.parse(properties.get(name, _text(key.default))) for name, key in SSL.items()}
        return client_context(TlsProperties(values, _read)).context
    except ConfigError as fault:
        raise ConnectorError(f"options kafka.ssl.*: {fault}") from None


def _text(default: Any) -> str | None:
    return ",".join(default) if isinstance(default, list) else None if default is None else str(default)


def _read(path: str) -> bytes | None:
    file = Path(path)
    return file.read_bytes() if file.exists() else None
