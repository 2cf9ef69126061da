"""TLS and SASL of a node's listeners and of its connections to other nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.node.logins import peer_login
from ottla.server.config.errors import require
from ottla.server.config.node_config import NodeConfig
from ottla.server.extras import CRYPTOGRAPHY
from ottla.server.metrics import GAUGE, Family
from ottla.server.network.listener import ServerTls
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.world import World

if TYPE_CHECKING:
    from ottla.server.tls.node_tls import NodeTls


class NodeSecurity:
    """Made before anything is opened: a key store that cannot be used ends the start. Raises ConfigError."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self.of_listeners: dict[str, ServerTls] = {}
        protocols = {endpoint.name: endpoint.security_protocol for endpoint in config.endpoints}
        controllers = config.controller_names[0]
        brokers = config.inter_broker_listener if config.is_broker else controllers
        for peers in (controllers, brokers):
            protocols.setdefault(peers, config.security_protocol(peers))
        logins = {
            peers: peer_login(world, config, peers, mechanism)
            # A node that is a controller only has one listener for both.
            for peers, mechanism in (
                (brokers, "sasl.mechanism.inter.broker.protocol"),
                (controllers, "sasl.mechanism.controller.protocol"),
            )
        }
        self._tls = _node_tls(world, config) if any(p.endswith("SSL") for p in protocols.values()) else None
        if self._tls is not None:
            self.of_listeners = {
                endpoint.name: self._tls.of_listener(endpoint.name, endpoint.security_protocol)
                for endpoint in config.endpoints
                if endpoint.security_protocol.endswith("SSL")
            }
        peers_of = {
            peers: PeerSecurity(
                self._tls.to_peers(peers) if self._tls is not None and protocols[peers].endswith("SSL") else None,
                login,
            )
            for peers, login in logins.items()
        }
        self.to_controllers, self.to_brokers = peers_of[controllers], peers_of[brokers]
        if self._tls is not None:
            self._tls.check_peers()

    def check_stores(self, configs: Mapping[str, str]) -> str | None:
        """Returns why the stores of a dynamic configuration of this node cannot be used, or None."""
        return None if self._tls is None else self._tls.rejection(configs)

    def metrics(self) -> Iterator[Family]:
        samples = [] if self._tls is None else self._tls.certificate_samples()
        doc = "Seconds for which the certificate of a listener, or of connections to other nodes, is still valid"
        yield Family("ottla_certificate_valid_seconds", GAUGE, doc, samples)

    def stop(self) -> None:
        if self._tls is not None:
            self._tls.stop()


def _node_tls(world: World, config: NodeConfig) -> NodeTls:
    require(CRYPTOGRAPHY, "TLS", "listener.security.protocol.map", config["listener.security.protocol.map"])
    # Not at the top: most nodes of developers have no TLS, and its libraries take 60 ms to import.
    from ottla.server.tls.node_tls import NodeTls

    return NodeTls(world, config)
