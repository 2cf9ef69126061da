"""librdkafka's tests once more, over TLS and with logins: the list of tests, and their needs besides the client's settings."""

from __future__ import annotations

from tests.compat.librdkafka import Server
from tests.compat.secured import USER, SecuredNode, librdkafka

#: The words of librdkafka_secured_allow.txt: each stands for a security protocol and a mechanism.
VARIANTS = {
    "plain": ("SASL_PLAINTEXT", "PLAIN"),
    "scram": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "unsigned": ("SASL_PLAINTEXT", "OAUTHBEARER"),
    "ssl": ("SSL", ""),
    "scram-ssl": ("SASL_SSL", "SCRAM-SHA-512"),
}


def server(node: SecuredNode, variant: str) -> Server:
    """Return the server that the tests of a variant need."""
    protocol, mechanism = VARIANTS[variant]
    settings = librdkafka(node, protocol, mechanism)
    if variant == "unsigned":
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
    return Server(settings.pop("bootstrap.servers"), settings, node.address("PLAINTEXT"))
