"""The TLS variables of the images give properties with which a node can serve TLS: each is resolved, written to a file and read
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.container.resolve import resolve
from ottla.container.settings import write_file
from ottla.local.certificates import Authority
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.properties_file import read_properties
from ottla.server.tls.contexts import server_context
from ottla.server.tls.stores import TlsProperties

AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["kafka"])
APACHE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "SSL://:9093,CONTROLLER://:9094",
    "KAFKA_ADVERTISED_LISTENERS": "SSL://kafka:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SSL:SSL,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "SSL",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9094",
    "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
}
BITNAMI = {name.replace("KAFKA_", "KAFKA_CFG_", 1): text for name, text in APACHE.items() if name.startswith("KAFKA_")}
SECRETS = "/etc/kafka/secrets"


@pytest.mark.parametrize(
    ("environment", "files"),
    [
        (
            APACHE
            | {
                "KAFKA_SSL_KEYSTORE_FILENAME": "kafka.jks",
                "KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds",
                "KAFKA_SSL_KEY_CREDENTIALS": "creds",
            },
            {f"{SECRETS}/kafka.jks": NODE.pkcs12("secret"), f"{SECRETS}/creds": b"secret\n"},
        ),
        (
            APACHE
            | {
                "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
                "KAFKA_SSL_KEYSTORE_KEY": NODE.key_pem.replace("\n", "\\n"),
                "KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN": NODE.chain_pem.replace("\n", " "),
            },
            {},
        ),
        (
            BITNAMI | {"KAFKA_TLS_TYPE": "JKS", "KAFKA_CERTIFICATE_PASSWORD": "secret"},
            {
                "/bitnami/kafka/config/certs/kafka.keystore.jks": NODE.pkcs12("secret"),
                "/bitnami/kafka/config/certs/kafka.truststore.jks": AUTHORITY.pkcs12("secret"),
            },
        ),
        (
            BITNAMI | {"KAFKA_TLS_TYPE": "PEM", "KAFKA_CERTIFICATE_PASSWORD": "secret"},
            {
                "/bitnami/kafka/config/certs/kafka.keystore.key": NODE.encrypted_key_pem("secret").encode(),
                "/bitnami/kafka/config/certs/kafka.keystore.pem": NODE.chain_pem.encode(),
                "/bitnami/kafka/config/certs/kafka.truststore.pem": AUTHORITY.pem.encode(),
            },
        ),
    ],
    ids=["apache-credentials", "apache-pem", "bitnami-jks", "bitnami-pem"],
)
def test_a_node_can_serve_what_the_variables_say(
    environment: dict[str, str], files: dict[str, bytes], tmp_path: Path
) -> None:
    resolution = resolve(environment, files.get)
    text = write_file({name: setting.value for name, setting in resolution.settings.items()})
    config = NodeConfig(read_properties(text.encode(), "server.properties"))
    properties = TlsProperties(config.values, files.get, config.of_listener("SSL"))
    made = server_context(properties, properties["ssl.client.auth"])
    assert made.keys is not None and made.keys.chain[0] == NODE.certificate
