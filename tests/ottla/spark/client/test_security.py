"""TLS and login by Kafka's own properties, and the message about each wrong one. No message has the password."""

from __future__ import annotations

import ssl

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark.client.security import security_of
from ottla.spark.errors import ConnectorError

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=anna password=s3cret{};"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN.format("")}


def test_a_listener_without_tls_and_login_is_the_default() -> None:
    assert security_of({}) == (None, None)


def test_each_login_is_an_exchange_of_its_own() -> None:
    security = security_of(SASL)
    assert security.tls is None and security.login is not None and security.login.mechanism == "PLAIN"
    for _ in range(2):
        assert security.login.exchange().answer(b"") == b"\0anna\0s3cret"


def test_a_delegation_token_says_that_it_is_one() -> None:
    given = {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": LOGIN.format(" tokenauth=true")}
    login = security_of(given).login
    assert login is not None
    first = login.exchange().answer(b"")
    assert first is not None and first.startswith(b"n,,n=anna,r=") and first.endswith(b",tokenauth=true")


def test_tls_checks_the_server_unless_the_user_does_not_want_it() -> None:
    tls = security_of({"security.protocol": "ssl"}).tls
    assert tls is not None and tls.verify_mode == ssl.CERT_REQUIRED and tls.check_hostname
    tls = security_of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).tls
    assert tls is not None and not tls.check_hostname


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol is TLS"),
        ({"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism GSSAPI is not served"),
        ({"sasl.jaas.config": LOGIN.format("")[:-1]}, "kafka.sasl.jaas.config cannot be read"),
        ({"sasl.jaas.config": ""}, "kafka.sasl.jaas.config cannot be read"),
        ({"sasl.jaas.config": "a.B required password=s3cret;"}, "kafka.sasl.jaas.config has no username"),
        ({"security.protocol": "SASL_SSL", "ssl.truststore.location": "/no/such.pem"}, "options kafka.ssl.*: "),
    ],
)
def test_a_wrong_property_is_named_without_its_secret(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        security_of({**SASL, **given})
    assert str(caught.value).startswith(sentence)
    assert "s3cret" not in str(caught.value)
