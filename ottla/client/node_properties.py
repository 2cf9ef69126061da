"""Client properties with which a command on a node's machine connects as the node itself, by the node's own server.properties.

A service unit has then nothing to configure for listeners with TLS and logins: the node may read its own keys and password.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.config.node_config import NodeConfig

JAAS = "sasl.jaas.config"


def client_properties(server_properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the properties of a client of the node's inter-broker listener, bootstrap.servers among them; None for a node that is no broker.

    Raises:
        ConfigError: the node would not start with these properties.
    """
    config = NodeConfig(dict(server_properties))
    if not config.is_broker:
        return None
    listener = config.inter_broker_listener
    endpoint = next(each for each in config.broker_endpoints if each.name == listener)
    host, port = endpoint.advertised_host or endpoint.host, endpoint.advertised_port or endpoint.port
    mechanism = config["sasl.mechanism.inter.broker.protocol"]
    prefix = f"listener.name.{listener.lower()}."
    found = {name: value for name, value in server_properties.items() if name.startswith("ssl.") or name == JAAS}
    for name, value in server_properties.items():
        own = name.removeprefix(prefix)
        if own != name and own.startswith("ssl."):
            found[own] = value
        elif own == f"{mechanism.lower()}.{JAAS}":
            found[JAAS] = value
    return found | {
        "bootstrap.servers": f"{host or 'localhost'}:{port}",
        "security.protocol": endpoint.security_protocol,
        "sasl.mechanism": mechanism,
    }
