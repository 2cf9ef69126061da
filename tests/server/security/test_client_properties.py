"""Client properties as Kafka's tools take them. Commands that use them are in tests/cluster/test_tls.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.server.config.errors import ConfigError
from ottla.server.network.peer_security import PLAINTEXT
from ottla.server.security.client_properties import client_security
from ottla.storage.files import OsFiles
from tools.certificates import Authority


def test_without_a_protocol_it_is_plaintext() -> None:
    assert client_security({}, OsFiles()) is PLAINTEXT
    assert client_security({"security.protocol": "plaintext"}, OsFiles()) is PLAINTEXT


def test_ssl_takes_the_stores_of_the_properties(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(Authority.create("test CA").pem)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    security = client_security({"security.protocol": "SSL", **trust}, OsFiles())
    assert security.tls is not None and security.tls.context.check_hostname
    assert [each["subject"] for each in security.tls.context.get_ca_certs()] == [((("commonName", "test CA"),),)]
    unchecked = client_security(
        {"security.protocol": "SSL", **trust, "ssl.endpoint.identification.algorithm": ""}, OsFiles()
    )
    assert unchecked.tls is not None and not unchecked.tls.context.check_hostname


def test_a_trust_store_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"/gone\.pem for configuration ssl\.truststore\.location: there is no such file"
    ):
        client_security(
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/gone.pem"},
            OsFiles(),
        )
