"""Makes OpenSSL contexts from the ssl.* properties, for both sides of a connection.

Cipher suites have Java's names in Kafka (those of the RFCs), while OpenSSL has its own names for TLS 1.2.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding

from ottla.server.network.handshakes import ServerSide, keep_asked_name, reason_of
from ottla.server.tls.stores import KeyStore, TlsProperties, key_store, trusted_certificates
from ottla.storage.files import private_file

log = logging.getLogger(__name__)

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Made(NamedTuple):
    """A context with its key store."""

    context: ssl.SSLContext
    keys: KeyStore | None


def server_context(properties: TlsProperties, client_auth: str) -> Made:
    """Raise ConfigError."""
    keys = key_store(properties)
    if keys is None:
        raise properties.error(
            "ssl.keystore.location",
            "an SSL listener needs a key store",
            "set ssl.keystore.location with ssl.keystore.type (PEM or PKCS12), or ssl.keystore.key and "
            "ssl.keystore.certificate.chain with ssl.keystore.type=PEM",
        )
    context = _context(properties, ssl.PROTOCOL_TLS_SERVER, keys)
    context.sslobject_class = ServerSide
    context.sni_callback = keep_asked_name
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _trust(properties, context)
    else:  # as in Kafka, an unreadable trust store is rejected even if it is not used for a check
        trusted_certificates(properties)
    return Made(context, keys)


def client_context(properties: TlsProperties) -> Made:
    """Raise ConfigError."""
    keys = key_store(properties)
    context = _context(properties, ssl.PROTOCOL_TLS_CLIENT, keys)
    algorithm = properties["ssl.endpoint.identification.algorithm"]
    if algorithm and algorithm.lower() != "https":
        remedy = "https, or nothing for no check of the name"
        raise properties.error("ssl.endpoint.identification.algorithm", "only https is known", remedy)
    context.check_hostname = bool(algorithm)
    _trust(properties, context)
    return Made(context, keys)


def _context(properties: TlsProperties, protocol: int, keys: KeyStore | None) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.options |= ssl.OP_NO_RENEGOTIATION
    lowest, highest = _versions(properties)
    suites = properties["ssl.cipher.suites"]
    if suites:
        lowest, highest = check_suites(properties, suites, lowest, highest)
        names = openssl_names(suites)
        if names:
            try:
                context.set_ciphers(":".join(names))
            except ssl.SSLError:
                why = "OpenSSL has none of these cipher suites"
                raise properties.error("ssl.cipher.suites", why, "leave it out for all that are secure") from None
    context.minimum_version, context.maximum_version = lowest, highest
    if keys is not None:
        with private_file(keys.pem) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                name = "ssl.keystore.location" if properties["ssl.keystore.location"] else "ssl.keystore.key"
                remedy = "use a key that OpenSSL takes: RSA of 2048 bits or more, or a curve such as P-256"
                raise properties.error(name, f"OpenSSL refuses the key store: {reason_of(error)}", remedy) from None
    return context


def _versions(properties: TlsProperties) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the TLS versions.

    Java, too, disables versions before 1.2 in its own security properties, whatever a node's properties say.
    """
    named = properties["ssl.enabled.protocols"]
    known = sorted(VERSIONS[name] for name in named if name in VERSIONS)
    if not named:
        return ssl.TLSVersion.TLSv1_2, VERSIONS.get(properties["ssl.protocol"], ssl.TLSVersion.TLSv1_3)
    if not known:
        raise properties.error("ssl.enabled.protocols", "none of them is secure", "TLSv1.2, TLSv1.3, or both")
    if len(known) < len(set(named)):
        log.warning("%s: only %s are served", properties.name_of("ssl.enabled.protocols"), ", ".join(VERSIONS))
    return known[0], known[-1]


def _trust(properties: TlsProperties, context: ssl.SSLContext) -> None:
    trusted = trusted_certificates(properties)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    # Java trusts each certificate in a trust store, also one that was signed by another.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(certificate.public_bytes(Encoding.DER) for certificate in trusted))


def check_each_other(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Return why a client with one context cannot connect to a server with the other. The host name is not checked."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checked_name, client.check_hostname = client.check_hostname, False
    try:
        sides = [
            server.wrap_bio(to_server, to_client, server_side=True),
            client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        ]
        while sides:
            for side in list(sides):
                try:
                    side.do_handshake()
                    sides.remove(side)
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError as error:
                    return reason_of(error)
    finally:
        client.check_hostname = checked_name
    return None


TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
CHANGES = (
    (re.compile(r"^(?:TLS|SSL)_"), ""),
    (re.compile(r"^RSA_WITH_"), ""),
    (re.compile(r"_WITH_"), "_"),
    (re.compile(r"AES_(128|256)_CBC_"), r"AES\1_"),
    (re.compile(r"AES_(128|256)_"), r"AES\1_"),
    (re.compile(r"CHACHA20_POLY1305_SHA256$"), "CHACHA20_POLY1305"),
)


def openssl_names(suites: Sequence[str]) -> list[str]:
    """Return OpenSSL's names for the suites below TLS 1.3."""
    names = []
    for suite in suites:
        if suite not in TLS_1_3:
            name = suite
            if suite.startswith(("TLS_", "SSL_")):
                for pattern, change in CHANGES:
                    name = pattern.sub(change, name)
                name = name.replace("_", "-")
            names.append(name)
    return names


def check_suites(
    properties: TlsProperties, suites: Sequence[str], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the TLS versions that remain with these suites.

    Python cannot choose among the suites of TLS 1.3, and OpenSSL prefers them in the order above: a list without the first one
    would have no effect, so it is rejected.
    """
    modern = [suite for suite in suites if suite in TLS_1_3]
    if len(modern) == len(suites):
        lowest = ssl.TLSVersion.TLSv1_3
    if not modern:
        highest = ssl.TLSVersion.TLSv1_2
    elif TLS_1_3[0] not in modern and highest == ssl.TLSVersion.TLSv1_3:
        why = f"of TLS 1.3, {TLS_1_3[0]} cannot be left out"
        raise properties.error("ssl.cipher.suites", why, f"add {TLS_1_3[0]}, or set ssl.enabled.protocols=TLSv1.2")
    if lowest > highest:
        why = "none of them is of a version in ssl.enabled.protocols"
        raise properties.error("ssl.cipher.suites", why, "add one, or change the versions")
    return lowest, highest
