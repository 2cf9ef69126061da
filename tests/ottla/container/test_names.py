"""The rules by which variables become property names, image by image."""

from __future__ import annotations

import pytest

from ottla.container import bitnami, kafka_dialect
from ottla.container.settings import read_value


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SASL_ENABLED_MECHANISMS", "listener.name.sasl_ssl.sasl.enabled.mechanisms"),
        (
            "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        ),
        ("KAFKA_JMX_PORT", "jmx.port"),
        ("KAFKA_CONFLUENT_BALANCER_ENABLE", "confluent.balancer.enable"),
    ],
)
def test_one_underscore_is_a_dot_two_are_one_three_are_a_dash(variable: str, name: str) -> None:
    assert kafka_dialect.property_name(variable) == name
    assert kafka_dialect.property_name(variable, every_prefix=False) == name


def test_only_apache_removes_the_prefix_inside_a_name() -> None:
    assert kafka_dialect.property_name("KAFKA_MY_KAFKA_X") == "my.x"
    assert kafka_dialect.property_name("KAFKA_MY_KAFKA_X", every_prefix=False) == "my.kafka.x"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_CFG_PROCESS_ROLES", "process.roles"),
        ("KAFKA_CFG_LISTENER_NAME_SASL_SSL_SSL_CLIENT_AUTH", "listener.name.sasl_ssl.ssl.client.auth"),
        ("KAFKA_CFG_LISTENER_NAME_SASL_PLAINTEXT_X", "listener.name.sasl_plaintext.x"),
        ("KAFKA_CFG_A__B", "a..b"),
    ],
)
def test_bitnami_knows_two_names_with_an_underscore_and_no_rule(variable: str, name: str) -> None:
    assert bitnami.property_name(variable) == name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a:b", "a:b"),
        (r"User\:admin", "User:admin"),
        ("tab\\tinside", "tab\tinside"),
        ("two\\\n  lines", "twolines"),
        ("", ""),
    ],
)
def test_values_are_lines_of_a_properties_file(text: str, value: str) -> None:
    assert read_value("KAFKA_X", text) == value
