"""From properties to the mechanisms of a listener: what Kafka's names mean, and what a node does not start with."""

from __future__ import annotations

import pytest

from ottla.server.config.errors import ConfigError
from ottla.server.config.load import NodeConfig
from ottla.server.security.sasl.exchange import SaslFailure
from ottla.server.security.sasl.listener import client_exchange, login_rules
from ottla.server.security.sasl.scram import ScramUsers

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CLIENTS://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": 'PlainLoginModule required username="u" password="p" user_u="planted";',
}
NO_USERS = ScramUsers(lambda mechanism, user: None, lambda mechanism, token: None, lambda user: b"", lambda: "n")
JAAS = "listener.name.clients.plain.sasl.jaas.config"


def rules(**changes: str) -> object:
    return login_rules(NodeConfig({**NODE, **changes}), "CLIENTS", NO_USERS)


def test_a_listener_has_its_own_mechanisms_users_and_session() -> None:
    changes = {
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.enabled.mechanisms": "GSSAPI",
        "connections.max.reauth.ms": "10000",
        "listener.name.clients.plain.connections.max.reauth.ms": "5000",
        "sasl.server.max.receive.size": "1000",
        "connection.failed.authentication.delay.ms": "7",
    }
    made = login_rules(NodeConfig({**NODE, **changes}), "CLIENTS", NO_USERS)
    assert list(made.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    assert made.session_ms_max == {"PLAIN": 5_000, "SCRAM-SHA-256": 10_000}
    assert (made.request_bytes_max, made.failed_delay_ms) == (1_000, 7)
    made.mechanisms["PLAIN"]().evaluate(b"\0u\0planted")
    with pytest.raises(SaslFailure):
        made.mechanisms["PLAIN"]().evaluate(b"\0u\0p")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Listener CLIENTS: the SASL mechanism GSSAPI is not served"),
        ({"sasl.enabled.mechanisms": ""}, "No SASL mechanisms are enabled"),
        ({JAAS: 'PlainLoginModule required user_u="planted"'}, f"{JAAS} cannot be read: no ';'"),
        ({JAAS: 'ScramLoginModule required user_u="planted";'}, "has the login module ScramLoginModule, which does not serve PLAIN"),
        ({"inter.broker.listener.name": "CLIENTS"}, "sasl.mechanism.inter.broker.protocol must be included in"),
    ],
)  # fmt: skip
def test_a_listener_that_could_not_authenticate_anybody_is_refused_at_start(changes: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules(**changes)
    assert said in str(refused.value) and refused.value.what_to_try
    assert "planted" not in str(refused.value) + refused.value.what_to_try


def test_plain_without_users_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"{JAAS} is not set"):
        login_rules(NodeConfig({name: text for name, text in NODE.items() if name != JAAS}), "CLIENTS", NO_USERS)


def test_a_node_logs_in_at_others_with_user_and_password_of_the_listeners_entry() -> None:
    config = NodeConfig(NODE)
    assert (
        client_exchange(config, "CLIENTS", "PLAIN", "sasl.mechanism.controller.protocol", "n").answer(b"") == b"\0u\0p"
    )
    with pytest.raises(ConfigError, match="does not have the mechanism"):
        client_exchange(config, "CLIENTS", "GSSAPI", "sasl.mechanism.controller.protocol", "n")
    config = NodeConfig({**NODE, JAAS: 'PlainLoginModule required user_u="planted";'})
    with pytest.raises(ConfigError, match="has no username, with which this node logs in at other nodes"):
        client_exchange(config, "CLIENTS", "PLAIN", "sasl.mechanism.controller.protocol", "n")
