"""Names of cipher suites: Kafka has Java's (those of the RFCs), OpenSSL its own for TLS 1.2."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence

from ottla.server.tls.properties import TlsProperties

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
    """Returns OpenSSL's names of the suites below TLS 1.3."""
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
    """Returns the TLS versions that remain with these suites.

    Python cannot choose among the suites of TLS 1.3, and OpenSSL prefers them in the order above: a list without the first
    would be ignored, so it is rejected.
    """
    modern = [suite for suite in suites if suite in TLS_1_3]
    if len(modern) == len(suites):
        lowest = ssl.TLSVersion.TLSv1_3
    if not modern:
        highest = ssl.TLSVersion.TLSv1_2
    elif TLS_1_3[0] not in modern and highest == ssl.TLSVersion.TLSv1_3:
        raise properties.error(
            "ssl.cipher.suites",
            f"of TLS 1.3, {TLS_1_3[0]} cannot be left out",
            f"add {TLS_1_3[0]}, or set ssl.enabled.protocols=TLSv1.2",
        )
    if lowest > highest:
        raise properties.error(
            "ssl.cipher.suites",
            "none of them is of a version in ssl.enabled.protocols",
            "add one, or change the versions",
        )
    return lowest, highest
