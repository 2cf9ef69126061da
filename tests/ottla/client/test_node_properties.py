"""A command on a node's machine connects by the node's own file."""

from __future__ import annotations

import pytest

from ottla.client.security import client_properties
from ottla.server.config.key import ConfigError

PLAIN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@a:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
SECURE = PLAIN | {
    "listeners": "CLIENTS://:9092,NODES://0.0.0.0:9091,CONTROLLER://:9093",
    "advertised.listeners": "CLIENTS://a:9092,NODES://a.internal:9091",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SASL_SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "NODES",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/ottla/a.pem",
    "listener.name.nodes.ssl.keystore.location": "/etc/ottla/nodes.pem",
    "listener.name.clients.ssl.keystore.location": "/etc/ottla/clients.pem",
    "listener.name.nodes.plain.sasl.jaas.config": "of the nodes",
    "listener.name.clients.plain.sasl.jaas.config": "of clients",
}


def test_plaintext_at_the_nodes_own_address() -> None:
    found = client_properties(PLAIN)
    assert found is not None
    assert (found["bootstrap.servers"], found["security.protocol"]) == ("localhost:9092", "PLAINTEXT")


def test_tls_and_login_are_those_of_the_listener_between_brokers() -> None:
    assert client_properties(SECURE) == {
        "bootstrap.servers": "a.internal:9091",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "of the nodes",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/etc/ottla/nodes.pem",
    }


def test_a_controller_alone_has_no_listener_of_brokers() -> None:
    assert client_properties(PLAIN | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}) is None


def test_a_file_that_a_node_would_not_start_with_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles"):
        client_properties({"node.id": "1"})
