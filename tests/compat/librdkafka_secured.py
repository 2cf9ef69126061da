"""librdkafka's tests once more, over TLS and with logins: which tests, and what they need beyond the client's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from tests.compat.librdkafka import Server
from tests.compat.secured import STORE_PASSWORD, USER, Files, SecuredNode, librdkafka

#: The words of librdkafka_secured_allow.txt: a security protocol and a mechanism each.
VARIANTS = {
    "plain": ("SASL_PLAINTEXT", "PLAIN"),
    "scram": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "unsigned": ("SASL_PLAINTEXT", "OAUTHBEARER"),
    "ssl": ("SSL", ""),
    "scram-ssl": ("SASL_SSL", "SCRAM-SHA-512"),
    "oidc": ("SASL_SSL", "OAUTHBEARER"),
}


@contextmanager
def server(node: SecuredNode, variant: str) -> Iterator[Server]:
    """Gives what the tests of a variant need; an endpoint for tokens runs meanwhile."""
    protocol, mechanism = VARIANTS[variant]
    settings = librdkafka(node, protocol, mechanism)
    environment = tls_environment(node.files) if variant == "ssl" else {}
    with node.files.identity.endpoint() as address:
        if variant == "unsigned":
            settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
        elif variant == "oidc":
            settings |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": "planted-client-secret",
                "sasl.oauthbearer.token.endpoint.url": f"{address}/token",
            }
            environment |= {
                "VALID_OIDC_URL": f"{address}/token",
                "INVALID_OIDC_URL": f"{address}/malformed",
                "EXPIRED_TOKEN_OIDC_URL": f"{address}/expired",
            }
        yield Server(settings.pop("bootstrap.servers"), settings, environment, node.address("PLAINTEXT"))


def tls_environment(files: Files) -> dict[str, str]:
    """The client's key and certificate in each encoding, as 0097 looks for them."""
    client, der = files.client, serialization.Encoding.DER
    key = client.key.private_bytes(der, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    for name, content in {
        "client.p12": client.pkcs12(STORE_PASSWORD),
        "client.crt.der": client.certificate.public_bytes(der),
        "client.key.der": key,
        "ca.der": files.authority.certificate.public_bytes(der),
    }.items():
        Path(files.path(name)).write_bytes(content)
    return {
        "SSL_password": STORE_PASSWORD,
        "SSL_client_auth": "required",
        "SSL_pkcs": files.path("client.p12"),
        "SSL_pub_der": files.path("client.crt.der"),
        "SSL_pub_pem": files.path("client.crt"),
        "SSL_priv_der": files.path("client.key.der"),
        "SSL_priv_pem": files.path("client.key"),
        "SSL_ca_der": files.path("ca.der"),
        "SSL_all_cas_pem": files.ca,
    }
